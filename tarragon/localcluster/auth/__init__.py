"""Authentication: users, service accounts and their tokens, and the reviews that answer questions about them.

Begin with `authentication`. There is no authorization: every authenticated user may do everything.
"""
