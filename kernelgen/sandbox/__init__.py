"""Containment: what a process that runs a candidate can see, reach and use up.

The features are the kernel's own (namespaces, Landlock, resource limits), called directly: a tool
such as bubblewrap has to exec, and a candidate is forked from a process that has torch imported.
"""
