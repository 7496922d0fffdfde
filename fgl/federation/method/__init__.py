"""Functions and classes for authors of methods. Read the files in the following order.

`fedavg` contains FedAvg, on which all other methods are based, and FedAvg's four functions.
`method` describes every field of a method. `message` describes the values that a server reads.
`compose` records the builders of a method, and rejects combinations that do not work. The other
files contain helpers.
"""
