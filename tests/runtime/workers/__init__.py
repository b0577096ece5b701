"""Tests of gateways with several workers."""
