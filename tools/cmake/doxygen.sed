# Ordinary comments to documentation: the first is the file's, one that begins a line belongs to what follows, one that ends a line to what is before it.
1s|^/\* |/** \\file\n * |
s|^\([ 	]*\)/\* |\1/** |
s|\([;,{]\)\([ 	]*\)/\* |\1\2/**< |
