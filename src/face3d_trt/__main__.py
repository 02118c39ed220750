"""`python -m face3d_trt` is `face3d-trt`."""

from face3d_trt.cli import main

if __name__ == "__main__":
    main()
