package engine

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// maxDisplays bounds the bytes of all Display events of an Execution.
	maxDisplays = 64 << 20
	// maxForms bounds the forms of one Display.
	maxForms = 32
	maxMIME  = 255
	// minText is the least that is kept of a text that does not fit.
	minText = 1 << 10
)

const plainText = "text/plain"

// displays bounds the Displays of an Execution. The zero value is ready.
type displays struct {
	count, dropped int64
	bytes          int
}

// take returns the part of b that goes into the log. It reports false if b is dropped.
func (d *displays) take(b executor.Display) (executor.Display, bool) {
	if d.count >= executor.MaxDisplays {
		d.dropped++
		return executor.Display{}, false
	}
	d.count++
	room := min(executor.MaxDisplayData, maxDisplays-d.bytes)
	kept := bounded(b, room)
	for mime, data := range kept.Data {
		d.bytes += len(mime) + len(data)
	}
	return kept, true
}

// bounded returns b with as many of its forms as fit into room bytes, the small ones first, so that the description of a large picture
// stays. Of a plain text that is too large the beginning stays.
func bounded(b executor.Display, room int) executor.Display {
	kept := executor.Display{Data: map[string][]byte{}, Value: b.Value, Truncated: b.Truncated}
	for _, mime := range slices.SortedFunc(maps.Keys(b.Data), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(b.Data[x]), len(b.Data[y])), strings.Compare(x, y))
	}) {
		data := b.Data[mime]
		left := room - len(mime)
		switch {
		case len(mime) > maxMIME || !utf8.ValidString(mime) || len(kept.Data) >= maxForms:
			kept.Truncated = true
			continue
		case len(data) > left && mime == plainText && left >= minText:
			data = []byte(strings.ToValidUTF8(string(data[:left]), ""))
			kept.Truncated = true
		case len(data) > left:
			kept.Truncated = true
			continue
		}
		kept.Data[mime] = data
		room -= len(mime) + len(data)
	}
	return kept
}
