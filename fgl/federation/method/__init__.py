"""Everything that the author of a method needs; read the files in this order.

`fedavg` has the four functions and the method from which all others start. `method` describes every
field, `inbox` and `message` the values that a server reads. `compose` records which builders made a
method, and refuses combinations that do not work. The other files serve these.
"""
