package serve

import "github.com/feedbridge/feedbridge/internal/entry"

// readEntry reads the body of a message that has an entry, as JSON or XML.
func (e *entity) readEntry() (*entry.Entry, bool) {
	if e.isJSONEntry() {
		d, ok := e.document()
		if !ok {
			return nil, false
		}
		return d.Entry(e.contentBase(), len(e.body)), true
	}
	return entry.Read(e.body, e.contentBase())
}

// document returns the fields of a message that has an entry or an item.
func (e *entity) document() (*entry.Document, bool) {
	if !e.isJSONEntry() {
		a, ok := entry.Read(e.body, e.contentBase())
		if !ok {
			return nil, false
		}
		return a.Document(e.entryID), true
	}
	d, ok := entry.Parse(e.body)
	if e.headerValue("Feed-Format") == "jsonfeed" && (!ok || d.Feed == nil) {
		// The item as the feed has it.
		if d = entry.ReadItem(e.body, e.contentBase()); d != nil {
			d.ID = e.entryID
		}
		ok = d != nil
	}
	return d, ok
}

// isJSONEntry reports whether the body may be what [entry.Entry.Encode] returns. An entity of a
// datareplication feed has no mark and no Entry-Id, and may have any JSON.
func (e *entity) isJSONEntry() bool {
	return (e.changes || e.headerValue(entryID) != "") && e.mediaType() == entry.ContentType
}

// restoreXML makes the body the XML of an entry that is not well-formed.
func (e *entity) restoreXML() {
	if !e.isJSONEntry() {
		return
	}
	if a, ok := entry.Decode(e.body, ""); ok && a.XML != "" {
		e.body, e.contentType = []byte(a.XML), "application/xml"
	}
}
