# `face3d-trt serve` on an NVIDIA GPU: https://docs.docker.com/build/. docs/serving.md has the commands.
#
#   docker build --build-arg TENSORRT=10.13.3.9 -t face3d-trt .
#
# TENSORRT: the version that built the plan; no other runs it. CUDA: the headers for pycuda, and the driver that the image
# asks for; 13.0 wants 580 or later. TensorRT's wheels bring the CUDA libraries that they need.
ARG CUDA=13.0.1
ARG UBUNTU=24.04

FROM nvidia/cuda:${CUDA}-devel-ubuntu${UBUNTU} AS build
ARG TENSORRT=11.4.0.106
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# hadolint ignore=DL3008  # Ubuntu keeps only the newest of each
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/face3d \
    # pycuda is compiled here; without cuRAND it needs nothing but the driver when it runs
    && echo 'CUDA_ENABLE_CURAND = False' > /etc/aksetup-defaults.py
ENV PATH=/opt/face3d/bin:${PATH}
WORKDIR /src
COPY constraints.txt ./
# Apart from the project, so that a change of the code leaves gigabytes where they are.
RUN pip install --constraint constraints.txt pycuda "tensorrt==${TENSORRT}"
COPY LICENSE NOTICE README.md pyproject.toml ./
COPY src ./src
RUN pip install --constraint constraints.txt "tensorrt==${TENSORRT}" '.[gpu,serve,detect,reconstruct]'

FROM nvidia/cuda:${CUDA}-base-ubuntu${UBUNTU}
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin face3d
COPY --from=build /opt/face3d /opt/face3d
# Empty: what the command chooses by itself.
ENV PATH=/opt/face3d/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    FACE3D_HOST=0.0.0.0 \
    FACE3D_PORT=8080 \
    FACE3D_BATCH_SIZE= \
    FACE3D_WORKER_COUNT= \
    FACE3D_MAX_QUEUE_SIZE=
USER 10001
WORKDIR /tmp
EXPOSE 8080
# Ready: the engine is loaded and warm, and the server does not end.
HEALTHCHECK --interval=15s --timeout=5s --start-period=180s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['FACE3D_PORT'] + '/readyz', timeout=4)"]
ENTRYPOINT ["face3d-trt"]
CMD ["serve", "/plans/face.plan"]
