package serve

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// pageBoundary returns the boundary of a page. It is the same on every copy of the server
// and while the page grows, because it is a hash of the page's name. If an entity
// contains it, by accident or not, the boundary depends on the hash of the page too.
func pageBoundary(id pageID, hash []byte) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %x", id, hash))
	return boundaryOf(sum[:])
}

func boundaryOf(sum []byte) string { return "feedbridge-" + hex.EncodeToString(sum[:16]) }

// clashes reports whether a part contains the boundary once more. It searches for the
// hyphen and the hash behind it only, because hyphens are rarer than letters.
func clashes(part []byte, boundary string) bool {
	same, n := len("--feedbridge"), len("--")+len(boundary)
	return bytes.Contains(part[n:], part[same:n])
}

// appendPart appends the entity as a part of a datareplication page, or of a snapshot. The standard fields are where the message has them, in their
// usual form and once, and behind the others if the message lacks them.
func appendPart(b []byte, e *entity, boundary string) []byte {
	b = append(b, "--"...)
	b = append(b, boundary...)
	b = append(b, "\r\n"...)
	var done [5]bool
	for _, f := range e.header {
		i := standard(f.Name)
		if i < 0 {
			b = appendField(b, f.Name, f.Value)
			continue
		}
		if !done[i] {
			done[i] = true
			b = appendStandard(b, f.Name, i, e)
		}
	}
	for i, name := range standards {
		if !done[i] {
			b = appendStandard(b, name, i, e)
		}
	}
	b = append(b, "\r\n"...)
	b = append(b, e.body...)
	return append(b, "\r\n"...)
}

func appendStandard(b []byte, name string, i int, e *entity) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	switch standards[i] {
	case message.ContentType:
		b = append(b, e.contentType...)
	case message.ContentID:
		b = append(b, e.id...)
	case message.LastModified:
		b = e.modified.UTC().AppendFormat(b, http.TimeFormat)
	case message.OperationType:
		b = append(b, message.FormatOperation(e.op)...)
	case contentLength:
		b = strconv.AppendInt(b, int64(len(e.body)), 10)
	}
	return append(b, "\r\n"...)
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// linkFields are the Link fields of a page, one line each, as old clients want it.
func linkFields(base string, p *page, span feed.Span) []string {
	link := func(k uint64, rel string) string {
		return "<" + base + "/pages/" + p.id.withNumber(k).String() + ">; rel=" + rel
	}
	list := []string{link(p.id.k, "self")}
	if p.hasPrev(span) {
		list = append(list, link(p.before.k, "prev"))
	}
	if p.after.ok {
		list = append(list, link(p.after.k, "next"))
	}
	return list
}

// asRead returns an entity as a reader of a page gets it.
func asRead(e *entity) feed.Entity {
	part := string(appendPart(nil, e, ""))
	head, _, _ := strings.Cut(part, "\r\n\r\n")
	_, head, _ = strings.Cut(head, "\r\n") // the boundary
	var header feed.Header
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		header = append(header, feed.Field{Name: name, Value: value})
	}
	return feed.Entity{ID: e.id, Op: e.op, Modified: e.modified, Header: header, Body: e.body}
}
