package feedxml

import (
	"bytes"
	"encoding/xml"
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

// readDoctype reads the general entities that the internal subset of a document type
// declaration defines. External entities are never fetched, and parameter entities are
// not used.
func (t *entityTable) readDoctype(doctype []byte) {
	_, subset, ok := bytes.Cut(doctype, []byte("["))
	if !ok {
		return
	}
	var s scanner
	for i := 0; i < len(subset); {
		n := bytes.IndexByte(subset[i:], '<')
		if n < 0 {
			return
		}
		i += n
		switch rest := subset[i:]; {
		case bytes.HasPrefix(rest, openComment) || bytes.HasPrefix(rest, []byte("<?")):
			end, _ := s.scanMarkup(subset, i)
			i = max(end, i+1)
		case bytes.HasPrefix(rest, []byte("<!ENTITY")):
			i += t.readDeclaration(rest)
		default:
			i++
		}
	}
}

// readDeclaration reads one declaration, and returns how many bytes of it were read.
func (t *entityTable) readDeclaration(b []byte) int {
	i := len("<!ENTITY")
	skip := func(class *[256]bool) []byte {
		start := i
		for i < len(b) && class[b[i]] {
			i++
		}
		return b[start:i]
	}
	before := skip(&isSpace)
	name := string(skip(&isName))
	skip(&isSpace)
	if len(before) == 0 || name == "" || i == len(b) || b[i] != '"' && b[i] != '\'' {
		return i
	}
	n := bytes.IndexByte(b[i+1:], b[i])
	if n < 0 {
		return i
	}
	value := b[i+1 : i+1+n]
	i += n + 2
	// The first of several declarations is used (XML, section 4.2).
	if _, again := t.declared[name]; again || len(t.declared) == mostEntities || len(value) > longestEntity || predefined(name) != 0 || bytes.IndexByte(value, '%') >= 0 {
		return i
	}
	if t.declared == nil {
		t.declared = map[string]declaredEntity{}
	}
	text := withoutNumeric(value)
	t.declared[strings.Clone(name)] = declaredEntity{text, isContent([]byte(text))}
	return i
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
// changed is false if it has none of them. The element is read again afterwards, so the
// replacement text of an entity must be complete elements and text: fault names an
// entity for which that is not so, and whose value is treated as text.
func (t *entityTable) expandEntities(b []byte) (expanded []byte, changed bool, fault string) {
	x := expansion{entities: t.declared, left: mostExpanded - t.expanded}
	expanded = mapReferences(b, func(name string, inTag bool) (string, bool) {
		text, ok := x.entityText(name, inTag, 0)
		changed = changed || ok
		return text, ok
	})
	t.expanded = mostExpanded - x.left
	return expanded, changed, x.fault
}

// entityTable holds the entities that a document declares.
type entityTable struct {
	declared map[string]declaredEntity
	expanded int // the bytes that references to them have expanded to
}

// declaredEntity is an entity that the document declares.
type declaredEntity struct {
	value string
	// isContent reports whether value is content of an element: complete elements, text
	// and references.
	isContent bool
}

// expansion replaces references to declared entities.
type expansion struct {
	entities map[string]declaredEntity
	// left is the number of bytes of values that may still be read. It also bounds the
	// time, which would otherwise grow exponentially with entities that refer to each
	// other.
	left int
	// fault is the last entity whose value was treated as text because it is no
	// content.
	fault string
}

// entityText returns the replacement text of a reference to an entity. It is not ok if the entity is
// not declared, refers to itself, or needs more than is left.
func (x *expansion) entityText(name string, inTag bool, depth int) (text string, ok bool) {
	e, ok := x.entities[name]
	if !ok || depth > 8 {
		return "", false
	}
	if x.left -= len(e.value) + 1; x.left < 0 {
		x.left = 0
		return "", false
	}
	if !inTag && !e.isContent {
		x.fault = name
		return asText(e.value), true
	}
	replace := func(name string, inTag bool) (string, bool) {
		if _, declared := x.entities[name]; !ok || !declared {
			return "", false
		}
		var inner string
		inner, ok = x.entityText(name, inTag, depth+1)
		return inner, ok
	}
	if inTag {
		// An attribute value has no tags, so a < in it is text.
		b := appendReferences(nil, []byte(e.value), true, replace)
		return attributeEscaper.Replace(string(b)), ok
	}
	return string(mapReferences([]byte(e.value), replace)), ok
}

var attributeEscaper = strings.NewReplacer("<", "&lt;", `"`, "&quot;", "'", "&apos;")

// asText escapes the markup of a value, and its references to entities.
func asText(value string) string {
	p := repairer{b: []byte(strings.ReplaceAll(value, "<", "&lt;"))}
	p.escapeReferences(0, len(p.b))
	return string(appendReferences(nil, p.out, false, func(name string, _ bool) (string, bool) { return "&amp;" + name + ";", true }))
}

// isContent reports whether a value consists of complete elements, text and
// references, as the value of an entity has to (XML, section 4.3.2).
func isContent(b []byte) bool {
	s := scanner{maxAttributes: mostAttributes}
	var open [][]byte
	for i := 0; i < len(b); {
		n := bytes.IndexByte(b[i:], '<')
		if n < 0 {
			n = len(b) - i
		}
		if s.scanReferences(b, i, i+n) != nil {
			return false
		}
		if i += n; i == len(b) {
			break
		}
		if i+1 == len(b) {
			return false
		}
		end, err := 0, (*syntaxError)(nil)
		switch c := b[i+1]; {
		case isNameStart[c]:
			var t tag
			if t, err = s.scanTag(b, i); t.end > 0 && !t.empty {
				open = append(open, b[i+1:t.nameEnd])
			}
			end = t.end
		case c == '/' && len(open) > 0:
			end, err = scanEndTag(b, i, open[len(open)-1])
			open = open[:len(open)-1]
		case c == '!' || c == '?':
			end, err = s.scanMarkup(b, i)
		}
		if end == 0 || err != nil {
			return false
		}
		i = end
	}
	return len(open) == 0
}

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
