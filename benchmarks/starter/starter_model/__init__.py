"""How the starter model is made: its data, its tokenizer, its training and its damage."""
