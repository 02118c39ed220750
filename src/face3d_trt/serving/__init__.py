"""The engine behind HTTP: fronts that speak it, processes that hold engines, processes that read photos."""
