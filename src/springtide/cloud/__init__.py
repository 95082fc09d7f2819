"""Which machines to rent: catalog, planner, spot, export."""
