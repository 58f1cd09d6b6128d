"""The modelmeter server: language models over gRPC, with a true bill for every call."""
