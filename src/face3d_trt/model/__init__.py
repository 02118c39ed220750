"""From a model directory to float32 PyTorch: the coefficient network, the morphable model, and a stand-in for both."""
