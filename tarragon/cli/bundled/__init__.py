"""Files that the package brings along: the documentation and the examples.

`files` finds them, `pages` reads the documentation, and `examples` writes the examples out. Messages name a page as
`tarragon docs PAGE#SECTION`, and no file of the repository, which a user need not have.
"""
