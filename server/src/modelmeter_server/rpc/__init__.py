"""The gRPC face: conversion, status, servicers, server. Knows no provider and no socket."""
