"""The figures of EasyScale, each with the function that finds its data and the one that draws it."""
