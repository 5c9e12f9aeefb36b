"""Which packages there are: all that are found. The rest is in setup.cfg."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["agentcore_*"]), *find_packages("verify")])
