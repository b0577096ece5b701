"""Tests of declared JSON forms."""
