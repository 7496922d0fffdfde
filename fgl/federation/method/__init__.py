"""An author's words: messages, the inbox, a method, FedAvg, what may be made of what."""
