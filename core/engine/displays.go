package engine

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// maxDisplays bounds the bytes of all Display events of an Execution.
	maxDisplays = 64 << 20
	// maxForms bounds the forms of one.
	maxForms = 32
	maxMIME  = 255
	// leastText is what is worth keeping of a text that does not fit.
	leastText = 1 << 10
)

const plainText = "text/plain"

// displays bounds what an Execution shows. The zero value is ready.
type displays struct {
	count, dropped int64
	bytes          int
}

// take returns what of b goes into the log; false: nothing.
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

// bounded returns b with as many of its forms as fit into room, the small ones first: a picture too large leaves its
// description. Of a text too large the beginning stays.
func bounded(b executor.Display, room int) executor.Display {
	kept := executor.Display{Data: map[string][]byte{}, Value: b.Value, Truncated: b.Truncated}
	names := make([]string, 0, len(b.Data))
	for mime := range b.Data {
		names = append(names, mime)
	}
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(len(b.Data[x]), len(b.Data[y])), strings.Compare(x, y))
	})
	for _, mime := range names {
		data := b.Data[mime]
		left := room - len(mime)
		switch {
		case len(mime) > maxMIME || !utf8.ValidString(mime) || len(kept.Data) >= maxForms:
			kept.Truncated = true
			continue
		case len(data) > left && mime == plainText && left >= leastText:
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
