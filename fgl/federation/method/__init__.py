"""Functions and classes for authors of methods. Read the files in the following order.

`fedavg` has the four functions of a method, and the method on which all other methods are based.
`method` describes every field of a method. `message` describes the values that a server reads.
`compose` records the builders of a method, and rejects combinations that do not work. The other
files contain helpers.
"""
