package main

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/message"
)

// entityWriter writes entities as JSON lines. Values are complete; control characters
// are escaped.
type entityWriter struct {
	w       io.Writer
	buffer  bytes.Buffer
	encoder *json.Encoder
}

func newEntityWriter(w io.Writer) *entityWriter {
	e := &entityWriter{w: w}
	e.encoder = json.NewEncoder(&e.buffer)
	e.encoder.SetEscapeHTML(false)
	return e
}

func (w *entityWriter) writeEntities(entities []feed.Entity) error {
	for i := range entities {
		if err := w.writeLine(newEntityLine(&entities[i])); err != nil {
			return err
		}
	}
	return nil
}

// writeLine writes v, which is JSON with one line.
func (w *entityWriter) writeLine(v any) error {
	w.buffer.Reset()
	if err := w.encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.w.Write(safetext.JSON(w.buffer.Bytes()))
	return err
}

// entityLine is an entity as tail prints it. The body is JSON if [bodyAsJSON] returns it, else text
// if it is UTF-8, and base64 otherwise.
type entityLine struct {
	ID       string         `json:"id,omitempty"`
	Op       feed.Operation `json:"operation,omitempty"`
	Modified time.Time      `json:"modified,omitzero"`
	Made     string         `json:"made,omitempty"` // headers whose values feedbridge made
	Headers  [][2]string    `json:"headers"`
	Body     any            `json:"body,omitempty"` // a string or a [json.RawMessage]
	Base64   []byte         `json:"body_base64,omitempty"`
	Page     string         `json:"page"`
}

func newEntityLine(e *feed.Entity) entityLine {
	l := entityLine{ID: e.ID, Op: e.Op, Modified: e.Modified, Made: e.Made, Headers: make([][2]string, len(e.Header)), Page: e.Page}
	for i, f := range e.Header {
		l.Headers[i] = [2]string{f.Name, f.Value}
	}
	if !utf8.Valid(e.Body) {
		l.Base64 = e.Body
	} else if value := bodyAsJSON(e); value != nil {
		l.Body = value
	} else {
		l.Body = string(e.Body)
	}
	return l
}

// bodyAsJSON returns the body of an entity if it is complete, its type is JSON, and it is an object or an array;
// else nil. Strings are not among them: a string in the line is always the text of the body.
func bodyAsJSON(e *feed.Entity) json.RawMessage {
	contentType, _ := e.Header.Get(message.ContentType)
	media, _, _ := mime.ParseMediaType(contentType)
	if media != "application/json" && !strings.HasSuffix(media, "+json") || e.Length > 0 {
		return nil
	}
	// The body is read as part of a larger value, because package json limits how deep values are nested, and
	// the line must not exceed that.
	var values []json.RawMessage
	if json.Unmarshal(slices.Concat([]byte("["), e.Body, []byte("]")), &values) != nil || len(values) != 1 {
		return nil
	}
	if first := values[0][0]; first != '{' && first != '[' {
		return nil
	}
	return values[0]
}
