# The modelmeter server with its command line.
#
#   docker build --tag modelmeter .
#   docker run --publish 127.0.0.1:50051:50051 --env MODELMETER_ALLOW_INSECURE=true modelmeter
#
# It listens on every address of the container, which the server refuses without TLS unless that is said explicitly,
# as above. With a configuration file: --volume "$PWD/modelmeter.toml:/etc/modelmeter.toml:ro" and the words
# `serve --config /etc/modelmeter.toml` after the image.
#
# The health check speaks no TLS and shows no token. Where the server wants either, let it ask the private listener:
# `private_listen = "127.0.0.1:50052"` in the configuration and --env MODELMETER_ADDRESS=127.0.0.1:50052.

# ---- build: wheels of both distributions, installed with pinned dependencies into an environment of its own
FROM python:3.13-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

WORKDIR /src
COPY constraints.txt ./
RUN python -m pip install --constraint constraints.txt --upgrade pip \
    && python -m venv --without-pip /opt/modelmeter

COPY client ./client
COPY server ./server
RUN python -m pip wheel --no-deps --build-constraint constraints.txt --wheel-dir /wheels ./client ./server \
    && server="$(echo /wheels/modelmeter_server-*.whl)" \
    && python -m pip --python /opt/modelmeter/bin/python install \
        --constraint constraints.txt --only-binary :all: /wheels/modelmeter-*.whl \
        "${server}[bedrock,google,otlp,postgres,prices,prometheus]"

# ---- the image: the environment alone, no pip in it, no compiler, no sources
FROM python:3.13-slim

ENV PATH=/opt/modelmeter/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GRPC_VERBOSITY=ERROR \
    MODELMETER_LISTEN=0.0.0.0:50051

COPY --from=build /opt/modelmeter /opt/modelmeter

# A number, so that an orchestrator can see that it is not root. The ledger is written to the working directory.
RUN install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/modelmeter
USER 10001:10001
WORKDIR /var/lib/modelmeter
VOLUME /var/lib/modelmeter

EXPOSE 50051
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["modelmeter", "healthcheck"]

# Keys come at run time, from the environment or from mounted files that the configuration names.
ENTRYPOINT ["modelmeter"]
CMD ["serve"]
