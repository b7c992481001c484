package tests

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/needtest"
)

// richCell shows two values that know how they look, the second one as the cell's value.
const richCell = `class Figure:
    def _repr_png_(self): return b'\x89PNG\r\n\x1a\n' + b'p' * 1000
    def __repr__(self): return '<Figure>'
class Frame:
    def _repr_html_(self): return '<table><tr><td>1</td></tr></table>'
    def __repr__(self): return '   a\n0  1'
display(Figure())
Frame()`

func TestSessionsShowPlotsAndFrames(t *testing.T) {
	onBothBackends(t, func(t *testing.T, s *server) {
		id := s.session(`{}`)
		r := s.cell(id, richCell)
		png := append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte("p"), 1000)...)
		holdsDisplays(t, r, []map[string]any{
			{"mime": "image/png", "base64": base64.StdEncoding.EncodeToString(png), "value": false, "display": 0.0},
			{"mime": "text/plain", "data": "<Figure>", "value": false, "display": 0.0},
			{"mime": "text/html", "data": "<table><tr><td>1</td></tr></table>", "value": true, "display": 1.0},
			{"mime": "text/plain", "data": "   a\n0  1", "value": true, "display": 1.0},
		})
		events := s.displayEvents(r["execution_id"].(string))
		if len(events) != 2 || events[0].Value || !events[1].Value || events[1].Data["text/html"] != "<table><tr><td>1</td></tr></table>" {
			t.Fatalf("%+v", events)
		}
		if form, _ := events[0].Data["image/png"].(map[string]any); form["base64"] != base64.StdEncoding.EncodeToString(png) {
			t.Errorf("%v", events[0].Data)
		}

		// No form is larger than the bound, and the value is there in a form that fits.
		r = s.cell(id, "class Huge:\n    def _repr_html_(self): return 'x' * (3 << 20)\n    def __repr__(self): return '<Huge>'\nHuge()")
		if value(r) != "<Huge>" || r["displays_truncated"] != true || len(r["displays"].([]any)) != 1 {
			t.Errorf("a form beyond the bound: %v", r)
		}
		// Nor are there more of them than the bound, nor is the result as large as all together.
		r = s.cell(id, "for i in range(205): display(i)")
		if list := r["displays"].([]any); len(list) != 200 || r["displays_dropped"] != 5.0 {
			t.Errorf("%d displays, %v dropped", len(list), r["displays_dropped"])
		}
		r = s.cell(id, "class Large:\n    def _repr_html_(self): return 'x' * (1 << 20)\nfor i in range(20): display(Large())")
		if raw, err := json.Marshal(r["displays"]); err != nil || len(raw) > 9<<20 || r["displays_truncated"] != true {
			t.Errorf("the result carries %d bytes, truncated: %v", len(raw), r["displays_truncated"])
		}
		if events := s.displayEvents(r["execution_id"].(string)); len(events) != 20 {
			t.Errorf("%d of 20 events", len(events))
		}
	})
}

// holdsDisplays compares what a result shows, whatever the order of one value's forms.
func holdsDisplays(t *testing.T, result map[string]any, want []map[string]any) {
	t.Helper()
	list, _ := result["displays"].([]any)
	if len(list) != len(want) {
		t.Fatalf("%d entries, want %d: %v", len(list), len(want), list)
	}
	for i, w := range want {
		if fmt.Sprint(list[i]) != fmt.Sprint(w) {
			t.Errorf("entry %d is %v, want %v", i, list[i], w)
		}
	}
}

type displayEvent struct {
	Data  map[string]any
	Value bool
}

// displayEvents are those of an execution's event stream.
func (s *server) displayEvents(id string) []displayEvent {
	s.t.Helper()
	var found []displayEvent
	kind := ""
	lines := bufio.NewScanner(bytes.NewReader(s.get("/api/v1/executions/" + id + "/events").body))
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = name
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && kind == "display" {
			var e displayEvent
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				s.t.Fatal(err)
			}
			found = append(found, e)
		}
	}
	if lines.Err() != nil {
		s.t.Fatal(lines.Err())
	}
	return found
}

// TestSessionsShowWhatTheLibrariesDraw has the real ones, which come from the package index.
func TestSessionsShowWhatTheLibrariesDraw(t *testing.T) {
	needtest.Long(t, "TestSessionsShowPlotsAndFrames")
	skipWithout(t, "index", needtest.Required("index"))
	s := startServer(t, nil)
	id := s.session(`{"requirements_txt":"pandas\nmatplotlib","config":{"timeout_seconds":600}}`)
	r := s.cell(id, "import matplotlib.pyplot as plt, pandas as pd\n_ = plt.plot([1, 2, 3])\npd.DataFrame({'a': [1, 2]})")
	forms := map[string]map[string]any{}
	for _, entry := range r["displays"].([]any) {
		d := entry.(map[string]any)
		forms[fmt.Sprint(d["mime"])] = d
	}
	png, err := base64.StdEncoding.DecodeString(fmt.Sprint(forms["image/png"]["base64"]))
	if err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) || forms["image/png"]["value"] != false {
		t.Errorf("the plot: %v %.100v", err, forms["image/png"])
	}
	if svg := fmt.Sprint(forms["image/svg+xml"]["data"]); !strings.Contains(svg, "<svg") {
		t.Errorf("the plot as svg: %.100s", svg)
	}
	if html := fmt.Sprint(forms["text/html"]["data"]); !strings.Contains(html, "<table") || forms["text/html"]["value"] != true {
		t.Errorf("the frame: %.100s", html)
	}
	if text := value(r); !strings.Contains(text, "   a\n0  1\n1  2") {
		t.Errorf("the frame as text: %q", text)
	}
	if len(s.displayEvents(r["execution_id"].(string))) != 2 {
		t.Error("the events are not two")
	}
}
