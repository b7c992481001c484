package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

const (
	// maxLogLine is the length at which a log line is cut in two.
	maxLogLine = 64 << 10
	// maxTail is how much of a plugin's other output is kept for the error when the plugin does not start.
	maxTail = 4 << 10
)

// logPump copies a plugin's stderr into our log. JSON lines of slog and hclog keep their level. A Go panic and the lines
// after it become errors, all other lines debug messages. It trusts no line.
type logPump struct {
	log  *slog.Logger
	done chan struct{}

	mu   sync.Mutex
	tail []byte
}

func newLogPump(log *slog.Logger) *logPump {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logPump{log: log, done: make(chan struct{})}
}

// pump reads r to its end and closes it.
func (p *logPump) pump(r io.ReadCloser) {
	defer close(p.done)
	defer func() { _ = r.Close() }()
	reader := bufio.NewReaderSize(r, maxLogLine)
	panicking := false
	for {
		line, _, err := reader.ReadLine()
		if err != nil {
			return
		}
		if level, msg, attrs, ok := parseLine(line); ok {
			p.log.LogAttrs(context.Background(), level, msg, attrs...)
			continue
		}
		p.keep(line)
		text := strings.ToValidUTF8(string(line), "\uFFFD")
		panicking = panicking || strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
		level := slog.LevelDebug
		if panicking {
			level = slog.LevelError
		}
		p.log.LogAttrs(context.Background(), level, "plugin wrote", slog.String("line", text))
	}
}

func (p *logPump) keep(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tail = append(append(p.tail, line...), '\n')
	if cut := len(p.tail) - maxTail; cut > 0 {
		p.tail = slices.Clone(p.tail[cut:])
	}
}

// text returns the end of the output that is not log.
func (p *logPump) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(p.tail), "\uFFFD"))
}

// parseLine reads a JSON log line.
func parseLine(line []byte) (slog.Level, string, []slog.Attr, bool) {
	var fields map[string]any
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &fields) != nil {
		return 0, "", nil, false
	}
	level, okLevel := take(fields, "level", "@level")
	msg, okMsg := take(fields, "msg", "@message")
	if !okLevel || !okMsg {
		return 0, "", nil, false
	}
	take(fields, "time", "@timestamp")
	take(fields, "@module")
	attrs := make([]slog.Attr, 0, len(fields))
	for key, value := range fields {
		attrs = append(attrs, slog.Any(key, value))
	}
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	return levelOf(level), msg, attrs, true
}

// take removes the first of names from fields and returns its value, which must be a string.
func take(fields map[string]any, names ...string) (string, bool) {
	for _, name := range names {
		if s, ok := fields[name].(string); ok {
			delete(fields, name)
			return s, true
		}
	}
	return "", false
}

func levelOf(name string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err == nil {
		return level
	}
	return slog.LevelDebug // hclog's trace, and unknown levels
}
