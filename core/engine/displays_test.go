package engine

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestTheBoundsOfADisplayAreExact(t *testing.T) {
	t.Parallel()
	data := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	many := func(n int) map[string][]byte {
		forms := map[string][]byte{}
		for i := range n {
			forms["a/"+strconv.Itoa(i)] = data(1)
		}
		return forms
	}
	const room = 4 << 10
	crowd := many(31)
	crowd["a/large"] = data(room - 50)
	for name, c := range map[string]struct {
		forms     map[string][]byte
		kept      int // forms
		bytes     int // of the data that is kept
		truncated bool
	}{
		"the longest name":              {map[string][]byte{strings.Repeat("m", maxMIME): data(1)}, 1, 1, false},
		"a name that is too long":       {map[string][]byte{strings.Repeat("m", maxMIME+1): data(1)}, 0, 0, true},
		"a name that is no text":        {map[string][]byte{"\xff": data(1)}, 0, 0, true},
		"as many forms as may be":       {many(maxForms), maxForms, maxForms, false},
		"one form too many":             {many(maxForms + 1), maxForms, maxForms, true},
		"a form that just fits":         {map[string][]byte{"a/b": data(room - 3)}, 1, room - 3, false},
		"a form that does not fit":      {map[string][]byte{"a/b": data(room - 2)}, 0, 0, true},
		"two forms that just fit":       {map[string][]byte{"a/b": data(10), "a/c": data(room - 16)}, 2, room - 6, false},
		"the larger one does not fit":   {map[string][]byte{"a/c": data(10), "a/b": data(room - 15)}, 1, 10, true},
		"the small ones come first":     {crowd, 31, 31, true},
		"a text that just fits":         {map[string][]byte{plainText: data(room - len(plainText))}, 1, room - len(plainText), false},
		"a text that is cut":            {map[string][]byte{plainText: data(room)}, 1, room - len(plainText), true},
		"a text with just enough room":  {map[string][]byte{"a/b": data(room - 3 - len(plainText) - minText), plainText: data(room)}, 2, room - 3 - len(plainText), true},
		"a text with not enough room":   {map[string][]byte{"a/b": data(room - 2 - len(plainText) - minText), plainText: data(room)}, 1, room - 2 - len(plainText) - minText, true},
		"a picture with enough room":    {map[string][]byte{"a/b": data(10), "image/png": data(room)}, 1, 10, true},
		"a text beside a large picture": {map[string][]byte{plainText: data(10), "image/png": data(room)}, 1, 10, true},
	} {
		kept := bounded(executor.Display{Data: c.forms}, room)
		size := 0
		for _, form := range kept.Data {
			size += len(form)
		}
		if len(kept.Data) != c.kept || size != c.bytes || kept.Truncated != c.truncated {
			t.Errorf("%s: %d forms with %d bytes, truncated: %t; want %d, %d, %t", name, len(kept.Data), size, kept.Truncated, c.kept, c.bytes, c.truncated)
		}
	}
}

func TestADisplayThatTheBackendHasCutSaysSo(t *testing.T) {
	t.Parallel()
	cut := executor.Display{Data: map[string][]byte{"a/b": []byte("x")}, Value: true, Truncated: true}
	if kept := bounded(cut, 1<<10); !reflect.DeepEqual(kept, cut) {
		t.Errorf("kept: %+v", kept)
	}
}

func TestTheDisplaysOfAnExecutionAreBoundedTogether(t *testing.T) {
	t.Parallel()
	var d displays
	full := map[string][]byte{"a/b": bytes.Repeat([]byte("x"), executor.MaxDisplayData-3)}
	for i := range executor.MaxDisplays + 2 {
		kept, ok := d.take(executor.Display{Data: full})
		room := i < maxDisplays/executor.MaxDisplayData
		if ok != (i < executor.MaxDisplays) || ok && (len(kept.Data) == 1) != room {
			t.Errorf("display %d is taken: %t, with %d forms", i+1, ok, len(kept.Data))
		}
	}
	if d.count != executor.MaxDisplays || d.dropped != 2 || d.bytes != maxDisplays {
		t.Errorf("%+v", d)
	}
}
