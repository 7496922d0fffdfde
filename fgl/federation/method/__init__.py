"""An author's words, in the order in which one reads them.

`fedavg` has the four functions and the method that all others start from; `method` says what each
field is; `inbox` and `message` what a server reads; `compose` how a builder joins a method's layers
and what may not go around what. The others serve these.
"""
