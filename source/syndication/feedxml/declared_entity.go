package feedxml

import (
	"bytes"
	"encoding/xml"
	"regexp"
	"strconv"
	"strings"
)

const (
	// mostEntities is the maximum number of entities of a document type declaration,
	// and longestEntity the maximum length of a value, in bytes.
	mostEntities  = 100
	longestEntity = 4 << 10
	// mostExpanded is the maximum number of bytes that the references of a document
	// expand to. Later references stay as they are written.
	mostExpanded = 256 << 10
)

// entityDeclaration matches the declaration of a general entity, and skips markup that may contain the text of one.
var entityDeclaration = regexp.MustCompile(`(?s)<!--.*?-->|<\?.*?\?>|<!ENTITY\s+([^\s"'%&;<>]+)\s+(?:"([^"]*)"|'([^']*)')`)

// entityTable holds the entities that a document declares.
type entityTable struct {
	declared map[string]string
	expanded int // the bytes that references to them have expanded to
}

// predefinedReference matches a reference to one of XML's own entities.
var predefinedReference = regexp.MustCompile(`&(?:lt|gt|amp|apos|quot);`)

// readDoctype reads the general entities that the internal subset of a document type declaration defines as text.
// Entities that are markup or refer to others than XML's own count as not defined: they would have to be parsed again,
// and could grow exponentially. External entities are never fetched.
func (t *entityTable) readDoctype(doctype []byte) {
	for _, m := range entityDeclaration.FindAllSubmatch(doctype, -1) {
		name, text := string(m[1]), withoutNumeric(append(m[2], m[3]...))
		// The first of several declarations is used (XML, section 4.2).
		_, again := t.declared[name]
		if again || name == "" || predefined(name) != 0 || len(text) > longestEntity || len(t.declared) == mostEntities || strings.ContainsAny(predefinedReference.ReplaceAllString(text, ""), "<&%") {
			continue
		}
		if t.declared == nil {
			t.declared = map[string]string{}
		}
		t.declared[name] = text
	}
}

// withoutNumeric returns the value of an entity with its numeric character references
// replaced.
func withoutNumeric(value []byte) string {
	var out []byte
	for {
		n := bytes.Index(value, []byte("&#"))
		if n < 0 {
			return string(append(out, value...))
		}
		out = append(out, value[:n]...)
		value = value[n:]
		length, ok := referenceLength(value)
		if !ok {
			out, value = append(out, value[:2]...), value[2:]
			continue
		}
		char, _ := numeric(string(value[1 : length-1]))
		out, value = append(out, string(char)...), value[length:]
	}
}

// expandEntities returns an element with the references to declared entities expanded;
// changed is false if it has none of them.
func (t *entityTable) expandEntities(b []byte) (expanded []byte, changed bool) {
	expanded = mapReferences(b, func(name string, inTag bool) (string, bool) {
		text, ok := t.declared[name]
		if !ok || t.expanded+len(text) > mostExpanded {
			return "", false
		}
		t.expanded += len(text)
		changed = true
		if inTag {
			text = quoteEscaper.Replace(text)
		}
		return text, true
	})
	return expanded, changed
}

var quoteEscaper = strings.NewReplacer(`"`, "&quot;", "'", "&apos;")

// ReplaceUndefined returns an element without references to entities that XML does not
// define: the entities of HTML become character references, and others become text.
func ReplaceUndefined(b []byte) []byte {
	return mapReferences(b, func(name string, _ bool) (string, bool) {
		if char := xml.HTMLEntity[name]; char != "" {
			var s strings.Builder
			for _, c := range char {
				s.WriteString("&#" + strconv.Itoa(int(c)) + ";")
			}
			return s.String(), true
		}
		return "&amp;" + name + ";", true
	})
}

// mapReferences replaces the references to entities, but for XML's own, in the text and
// the attributes of an element that was read before. If to returns false, the reference
// stays.
func mapReferences(b []byte, to func(name string, inTag bool) (string, bool)) []byte {
	out := make([]byte, 0, len(b)+len(b)/8)
	for len(b) > 0 {
		n := bytes.IndexByte(b, '<')
		if n < 0 {
			n = len(b)
		}
		out = appendReferences(out, b[:n], false, to)
		if b = b[n:]; len(b) == 0 {
			break
		}
		end := skipToken(b)
		if c := b[1]; c == '!' || c == '?' || c == '/' {
			out = append(out, b[:end]...)
		} else {
			out = appendReferences(out, b[:end], true, to)
		}
		b = b[end:]
	}
	return out
}

// appendReferences appends b, which is text or a tag, as [mapReferences] does.
func appendReferences(out, b []byte, inTag bool, to func(name string, inTag bool) (string, bool)) []byte {
	for {
		n := bytes.IndexByte(b, '&')
		if n < 0 {
			return append(out, b...)
		}
		out = append(out, b[:n]...)
		b = b[n:]
		length, _ := referenceLength(b)
		length = max(length, 1)
		with, ok := "", false
		if length > 2 && b[1] != '#' {
			if name := string(b[1 : length-1]); predefined(name) == 0 {
				with, ok = to(name, inTag)
			}
		}
		if ok {
			out = append(out, with...)
		} else {
			out = append(out, b[:length]...)
		}
		b = b[length:]
	}
}
