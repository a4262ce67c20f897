# A service that grades, from kernelgen's wheel: python -m build; docker build -f examples/serve.Dockerfile .
#
#   docker run --gpus all -p 8642:8642 -v kernelgen:/state -v ./token:/run/token:ro IMAGE
#
# Candidates are compiled as they come, so nvcc and a C++ compiler are in the image. `kernelgen doctor` in the container says what
# of containment it allows; a service that was killed goes on with what it had accepted, as long as /state is kept.
FROM nvidia/cuda:13.0.0-devel-ubuntu24.04

# Ubuntu keeps no old versions to be named here.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 kernelgen \
    && install -d -o kernelgen /state

COPY dist/kernelgen-*.whl /tmp/
RUN python3 -m venv /opt/kernelgen \
    && wheel=$(echo /tmp/kernelgen-*.whl) \
    && /opt/kernelgen/bin/pip install --no-cache-dir "${wheel}[serve]" \
    && rm /tmp/kernelgen-*.whl

ENV PATH=/opt/kernelgen/bin:$PATH
USER 10001
VOLUME /state
EXPOSE 8642
ENTRYPOINT ["kernelgen", "serve", "--state", "/state", "--host", "0.0.0.0", "--token-file", "/run/token"]
