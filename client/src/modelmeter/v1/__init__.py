"""Generated from the protos of `modelmeter.v1`: messages, enums, service stubs. See `make proto`."""
