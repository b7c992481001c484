package executor

import "strings"

// Nearest returns the one of known that an unknown name was probably meant to be, "" if none is near. A name that begins a known one, or is
// its last word, is near: requirements of requirements_txt, timeout of timeout_ms, image of docker_image.
func Nearest(name string, known []string) string {
	best, limit := "", 3
	name = strings.ToLower(name)
	switch n := len(name); {
	case n < 3 || n > 40:
		return ""
	case n < 5:
		limit = 2
	}
	for _, k := range known {
		d := EditDistance(name, k)
		if name != k && (len(name) > 3 && strings.HasPrefix(k, name) || strings.HasSuffix(k, "_"+name)) {
			d = 1
		}
		if d < limit {
			best, limit = k, d
		}
	}
	return best
}

// EditDistance returns the number of bytes to add, drop or replace to make b of a (Levenshtein), for suggestions in errors.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := corner
			if a[i] != b[j] {
				d = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
