package executor

// MaxPageBytes bounds a page of Store.List: the sum of Record.Weight over its Records. A page has at least one Record.
const MaxPageBytes = 4 << 20

// PageSize returns f.Limit with its default (50) and its maximum (500) applied.
func (f Filter) PageSize() int {
	if f.Limit <= 0 {
		return 50
	}
	return min(f.Limit, 500)
}

// Page collects the Records of one List. Every Store uses it, so that all agree on where a page ends.
type Page struct {
	// Records are those that were added, with their Specs in brief.
	Records []Record
	limit   int
	room    int64
}

// NewPage returns an empty Page for f.
func (f Filter) NewPage() *Page {
	limit := f.PageSize()
	return &Page{Records: make([]Record, 0, min(limit, 64)), limit: limit, room: MaxPageBytes}
}

// Add adds a copy of r if it still belongs to the page, and reports whether the page is full.
func (p *Page) Add(r Record) (full bool) {
	r = r.Brief()
	weight := r.Weight()
	if weight > p.room && len(p.Records) > 0 {
		return true
	}
	p.room -= weight
	p.Records = append(p.Records, r.Clone())
	return len(p.Records) >= p.limit || p.room <= 0
}

// Brief returns r with its Spec in brief.
func (r Record) Brief() Record {
	r.Spec = r.Spec.Brief()
	return r
}

// The weight of a Record and of one entry of a list, apart from their texts.
const (
	recordWeight = 1 << 10
	entryWeight  = 32
)

// Weight returns about how many bytes r takes in memory.
func (r Record) Weight() int64 {
	n := recordWeight + r.Spec.Size() + int64(len(r.Spec.Entrypoint)+len(r.Spec.Image)+len(r.Spec.Script)+len(r.Spec.HostDirectory))
	if s := r.Started; s != nil {
		n += sizeOf(s.Requirements) + int64(len(s.Handle))
	}
	if s := r.Result; s != nil {
		n += sizeOf(s.Requirements) + entryWeight*int64(len(s.MemorySamples))
		for _, list := range [][]Artifact{s.Artifacts, s.FilesChanged} {
			for _, a := range list {
				n += entryWeight + int64(len(a.Path))
			}
		}
		if s.Failure != nil {
			n += int64(len(s.Failure.Message))
		}
	}
	return n
}

// eventWeight is the weight of an Event apart from its data.
const eventWeight = 64

// Weight returns what e counts in Record.LogBytes, about its size in a log.
func (e Event) Weight() int64 {
	size := eventWeight
	switch b := e.Body.(type) {
	case Output:
		size += len(b.Data)
	case Display:
		for mime, data := range b.Data {
			size += len(mime) + len(data)
		}
	case Unknown:
		size += len(b.Raw)
	case Queued, Progress, Started, Finished:
	}
	return int64(size)
}

func sizeOf(list []string) int64 {
	n := entryWeight * int64(len(list))
	for _, text := range list {
		n += int64(len(text))
	}
	return n
}
