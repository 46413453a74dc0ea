# A trained parser as a service. The run folder is mounted, not copied:
#
#   docker build -t lagr .
#   docker run -p 127.0.0.1:8000:8000 -v "$PWD/runs/quickstart:/parser:ro" lagr
#
# torch as pip finds it brings gigabytes for GPUs. `--build-arg TORCH_INDEX=URL` takes it from PyTorch's index of builds
# for the CPU, which its installation page names.
FROM python:3.12-slim
ARG TORCH_INDEX=
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.11,<2.14"
COPY pyproject.toml README.md LICENSE /src/
COPY lagr /src/lagr
RUN pip install --no-cache-dir "/src[serve,ask,onnx]"

RUN useradd --create-home --uid 1000 lagr
USER lagr
WORKDIR /home/lagr
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["lagr"]
CMD ["serve", "/parser", "--host", "0.0.0.0"]
