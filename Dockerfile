# syntax=docker/dockerfile:1
# Two stages: the package is installed where there is pip, and runs where there is none.
ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY bridge bridge
# dumb-init: the init that reaps.
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && python -m venv --without-pip /opt/bridge \
 && python -m pip --python /opt/bridge/bin/python install --no-cache-dir --compile "dumb-init>=1.2.5" \
      "$(echo /wheels/*.whl)[otel,redis,speed]"
COPY --chmod=0755 .docker/bridge .docker/healthcheck.py /opt/bridge/image/
COPY servers /opt/bridge/servers

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="bridge" \
      org.opencontainers.image.description="Python tools and MCP servers, served over the Model Context Protocol" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT AND BSD-3-Clause"
RUN python -m pip uninstall --yes pip \
 && python -c "import ensurepip, shutil; shutil.rmtree(ensurepip.__path__[0])"
COPY --from=build /opt/bridge /opt/bridge
# `bridge` is found in image/ first: there it is started by the init.
ENV PATH="/opt/bridge/image:/opt/bridge/bin:$PATH" \
    HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    BRIDGE_TRANSPORT=http BRIDGE_HOST=0.0.0.0 BRIDGE_PORT=8000 \
    BRIDGE_DEFAULT_TARGETS=/app/tools,/etc/bridge/mcp.json
USER 10001:10001
WORKDIR /app
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["/opt/bridge/bin/python", "/opt/bridge/image/healthcheck.py"]
ENTRYPOINT ["bridge"]
# A bind beyond loopback asks for keys, or for BRIDGE_NO_AUTH=1, so that nobody serves the world unawares.
CMD ["serve"]
