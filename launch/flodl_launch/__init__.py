"""How agents get onto other hosts: SSH (fabric), docker, and what is pushed or run there.

The rules of this house: it imports flodl's nouns and ports and nothing above them; flodl never imports it, it is named
in conf/launch and loaded by that name. Whatever ends up in a shell is quoted in one place (`command`). Every failure is
a HostUnready that names host, cause and remedy. Nothing is sent to a server before its key was accepted.
"""
