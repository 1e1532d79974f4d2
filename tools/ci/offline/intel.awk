# intel.awk register_bytes=N MATRIX LOG PTM: kernels' figures from what ocloc said, and from the patch tokens that ocloc disasm lists. Bytes there are hexadecimal, lowest first.
function number(at,    i, value) {
	value = 0
	for (i = 3; i >= 0; i--) value = value * 256 + hex($(1 + 4 * at + i + 1))
	return value
}
function hex(text,    i, value) {
	value = 0
	for (i = 1; i <= length(text); i++) value = value * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
	return value
}
FNR == 1 { file++ }
file == 1 { matrix[$1] = $2; next }
file == 2 { if (/^warning: kernel .* spilled around/) spills[$3] = register_bytes * $NF; next } # registers of a thread, that is of all its items
$1 == "KernelName" { name = $2; order[++n] = name; bytes[name] = slm[name] = thread[name] = 0 }
$2 == "Token" { token = $3 }
$1 == "Hex" && token == 15 { slm[name] = number(1) }     # local surface: offset, size
$1 == "Hex" && token == 18 { thread[name] = number(1) }  # scratch of a hardware thread: offset, size
$1 == "Hex" && token == 38 { bytes[name] = number(3) }   # private memory of a work-item: three offsets, size
$1 == "Hex" && token == 23 { simd[name] = number(3) }    # execution: work-group's sizes, width
END {
	for (i = 1; i <= n; i++) {
		name = order[i]
		print name, "s" simd[name], spills[name] / simd[name], bytes[name] + thread[name] / simd[name], slm[name], matrix[name] + 0
	}
}
