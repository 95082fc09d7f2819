"""What is computed for a page and takes seconds: simulations and searches of machines, in processes of their own."""
