# syntax=docker/dockerfile:1
# Two stages: wheels are made where there is pip, and run where there is none.
ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY bridge bridge
RUN python -m venv --without-pip /opt/bridge \
 && python -m pip --python /opt/bridge/bin/python install --no-cache-dir ".[speed]"

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="bridge" \
      org.opencontainers.image.description="Python tools served over the Model Context Protocol" \
      org.opencontainers.image.licenses="MIT"
RUN python -m pip uninstall --yes pip
COPY --from=build /opt/bridge /opt/bridge
COPY servers /opt/bridge/servers
ENV PATH="/opt/bridge/bin:$PATH" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /app
EXPOSE 8000
STOPSIGNAL SIGTERM
ENTRYPOINT ["bridge"]
# A bind beyond loopback asks for a key or for BRIDGE_NO_AUTH=1, so that nobody serves the world unawares.
CMD ["serve", "/opt/bridge/servers/calculator.py", "--transport", "http", "--host", "0.0.0.0", "--port", "8000"]
