package storetest

// Rule is one rule of the contract, with its id.
type Rule struct{ ID, Text string }

// StoreRules returns the rules of every Store. DurableRules returns the further rules of a Store that outlives its process.
func StoreRules() []Rule {
	return []Rule{
		{"ST-01", "Create adds a Record with LastSeq 0 and LogBytes 0; Get returns it as it was given, CreatedAt in UTC."},
		{"ST-02", "Create of an id that exists is conflict and changes nothing; an empty id is invalid."},
		{"ST-03", "Of all Creates with the same owner and idempotency key exactly one adds a Record; the others get that Record back, created false. ByKey finds it."},
		{"ST-04", "An idempotency key belongs to its owner, and is free again when its Record is deleted."},
		{"ST-05", "Get, Spec, Update, Append and Events of an unknown id are not_found; of a deleted one they are purged."},
		{"ST-06", "What goes in and what comes out is copied: changing it afterwards changes nothing in the Store."},
		{"ST-07", "List returns the newest id first; paging by After and Limit shows every Record once; Limit 0 is 50 and the maximum is 500. Only an empty page is the last one."},
		{"ST-08", "List filters by owner and by the statuses that the heads have at that moment."},
		{"ST-09", "Update is atomic and changes only what is not folded from Events: id, owner, creation, key, the Spec and its size, status, times, byte counts, LastSeq, LogBytes, Started and Result stay."},
		{"ST-10", "Append numbers an Execution's Events from 1 without gaps, also under concurrent Appends, and gives them times that never go back."},
		{"ST-11", "Append folds Events into the head as Record.Apply does, before any follower sees them."},
		{"ST-12", "Append is all or nothing: after Finished, or with an Event behind a Finished, it is conflict and takes nothing; an Event without a body or a Finished that is not terminal is invalid; no Events are no change."},
		{"ST-13", "Events replays what is after Seq after, in order, and ends after Finished."},
		{"ST-14", "Events goes on with what is appended while it waits; every follower, however many, sees the same Events."},
		{"ST-15", "A follower ends with ctx's error when ctx ends, asleep or not."},
		{"ST-16", "A follower may stop at any Event, and the sequence may be ranged over again."},
		{"ST-17", "Delete removes a Record and its log, ends its followers with purged, and is idempotent; an unknown id is no error."},
		{"ST-18", "Every kind of Event comes back as it went in: binary data, empty and large output, unknown kinds."},
		{"ST-19", "LogBytes grows with every Append and is the same in Get, List and Update."},
		{"ST-20", "A follower that does not read holds up neither Append nor other followers, unless the Store's log is a window."},
		{"ST-21", "Executions do not mix: concurrent logs hold exactly their own Events."},
		{"ST-22", "Close is idempotent; it ends followers with unavailable, and every method is unavailable after it."},
		{"ST-23", "An Append of Finished races with others to exactly one Finished, with nothing after it."},
		{"ST-24", "CreateSession adds a SessionRecord; GetSessionRecord returns it as it was given; an id that exists is conflict and changes nothing; an empty id is invalid."},
		{"ST-25", "GetSessionRecord and UpdateSession of an unknown or deleted Session are not_found; DeleteSession is idempotent, and a deleted id can be given again."},
		{"ST-26", "ListSessionRecords returns the newest first, by CreatedAt and then id: an owner's, or with no owner all."},
		{"ST-27", "UpdateSession is atomic; id, owner and creation stay."},
		{"ST-28", "Sessions are copied in and out: changing what was given or what came back changes nothing in the Store."},
		{"ST-29", "Sessions and Executions do not mix, also under one id; after Close every method for Sessions is unavailable."},
		{"ST-40", "Create, Get, ByKey, List and Update return a Spec in brief: without its texts and lists if these are larger than 8 KiB, else whole. SpecBytes is the size of the whole one. Spec returns it whole."},
		{"ST-41", "The Records of a page of List weigh at most 4 MiB together, unless it is a single one."},
		{"ST-42", "Create with Events adds the Record and its first Events, numbered and folded as by Append, or nothing."},
	}
}

// DurableRules returns the rules of a Store that outlives its process.
func DurableRules() []Rule {
	return []Rule{
		{"ST-30", "What was created, updated and appended before Close is there after the next opening, byte for byte."},
		{"ST-31", "What was deleted stays deleted (purged) and its idempotency key free after the next opening."},
		{"ST-32", "A log goes on after the next opening where it ended: Seq without gap, times not going back, LogBytes right."},
		{"ST-33", "Idempotency keys, List's order and its filters hold after the next opening."},
		{"ST-34", "A Store in use cannot be opened a second time: unavailable, naming its path."},
		{"ST-35", "Sessions are after the next opening as they were before Close: created, updated and deleted."},
		{"ST-36", "A large Spec is whole after the next opening, also if its Record has changed since, and is deleted with its Record."},
		{"ST-37", "Opening, and then List, Get, Update and Append, read no large Spec: what they allocate does not grow with the Specs."},
	}
}

// BlobRules returns the rules of Blobs.
func BlobRules() []Rule {
	return []Rule{
		{"BL-01", "Open returns what Put stored; Put reports its size and sha256, Open its size; an empty blob is a blob."},
		{"BL-02", "Put replaces: a later Open sees the new content, a reader that is open keeps the old."},
		{"BL-03", "Put stores whole or not at all: when the reader fails or ctx ends, the former content stays."},
		{"BL-04", "A content of more than max bytes is exhausted and stores nothing; exactly max is stored."},
		{"BL-05", "A key is slash-separated segments of [a-z0-9_.-], none of them . or ..; Put of any other is invalid and touches nothing; Open of one is not_found."},
		{"BL-06", "A Source is replayable: it opens again from the beginning, also while another reader is open; a Path names a file with the same content."},
		{"BL-07", "Open of an unknown key is not_found."},
		{"BL-08", "Delete removes the blob and is idempotent; a reader that is open reads on."},
		{"BL-09", "List calls yield once for each blob whose key starts with prefix, with size and time, and stops when yield returns false; a blob that is being written is not listed."},
		{"BL-10", "Concurrent Puts of one key leave one of the contents, whole."},
	}
}
