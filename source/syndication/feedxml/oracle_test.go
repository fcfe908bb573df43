package feedxml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// found is what encoding/xml finds an entry to be.
type found struct {
	id         string
	start, end int      // in the document
	tree       []string // what is in it, with names resolved
}

// oracle splits a document in UTF-8 with encoding/xml. It knows nothing of early
// drafts of Atom, and takes no more for the ID of an entry than the element that
// the format has for it.
func oracle(tb testing.TB, doc []byte) []found {
	tb.Helper()
	entries, err := oracleEntries(doc)
	if err != nil {
		tb.Fatal(err)
	}
	return entries
}

// withoutVersion11 makes a document readable for encoding/xml, which refuses XML
// 1.1, and keeps its length.
func withoutVersion11(doc []byte) []byte {
	return bytes.Replace(doc, []byte(`<?xml version="1.1"`), []byte(`<?xml version="1.0"`), 1)
}

func oracleEntries(doc []byte) (entries []found, err error) {
	d := xml.NewDecoder(bytes.NewReader(withoutVersion11(doc)))
	d.CharsetReader = func(_ string, input io.Reader) (io.Reader, error) { return input, nil }
	var path []xml.Name
	var current *found
	entryDepth := 0
	var tree treeWriter
	for {
		at := int(d.InputOffset())
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			path = append(path, t.Name)
			if current == nil && isOracleEntry(path) {
				entries = append(entries, found{start: at})
				current, entryDepth = &entries[len(entries)-1], len(path)
				tree = treeWriter{}
			}
			if current != nil && t.Name.Space == tombstoneURI && t.Name.Local == "deleted-entry" && len(path) == entryDepth {
				for _, a := range t.Attr {
					if a.Name.Local == "ref" && a.Name.Space == "" && current.id == "" {
						current.id = trimSpace(oracleAttr(a.Value))
					}
				}
			}
		case xml.CharData:
			if current != nil && len(path) > entryDepth && path[entryDepth] == oracleID(path[:entryDepth]) {
				current.id += string(t)
			}
		}
		if current != nil {
			tree.add(token)
		}
		if _, ok := token.(xml.EndElement); ok {
			if current != nil && len(path) == entryDepth+1 && path[entryDepth] == oracleID(path[:entryDepth]) {
				current.id = trimSpace(current.id) + "\x00" // no other element counts
			}
			if current != nil && len(path) == entryDepth {
				current.id, _, _ = strings.Cut(current.id, "\x00")
				current.end = int(d.InputOffset())
				current.tree = tree.lines
				current = nil
			}
			path = path[:len(path)-1]
		}
	}
}

const tombstoneURI = "http://purl.org/atompub/tombstones/1.0"

// oracleAttr undoes what encoding/xml leaves: white space in values.
func oracleAttr(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ", "\r", " ").Replace(s)
}

func isOracleEntry(path []xml.Name) bool {
	rdfRoot := xml.Name{Space: "http://www.w3.org/1999/02/22-rdf-syntax-ns#", Local: "RDF"}
	last := path[len(path)-1]
	tombstone := xml.Name{Space: tombstoneURI, Local: "deleted-entry"}
	isAtom := func(n xml.Name, local string) bool { return spaceOf(n.Space) == atom && n.Local == local }
	isFeed := isAtom(path[0], "feed")
	isRSS := path[0].Local == "rss" && path[0] != tombstone
	own := path[0].Space
	if path[0] == rdfRoot {
		own = rss10URI
	}
	channel := xml.Name{Space: own, Local: "channel"}
	switch len(path) {
	case 1:
		return isAtom(path[0], "entry") || path[0] == tombstone
	case 2:
		if isFeed {
			return isAtom(last, "entry") || last == tombstone
		}
		return (isRSS || path[0] == rdfRoot) && (last == xml.Name{Space: own, Local: "item"} || last == tombstone)
	case 3:
		return (isRSS || path[0] == rdfRoot) && path[1] == channel && (last == xml.Name{Space: own, Local: "item"} || last == tombstone) ||
			isFeed && isAtom(path[1], "head") && last == tombstone
	}
	return false
}

// oracleID is the name of the element that identifies an entry.
func oracleID(path []xml.Name) xml.Name {
	last := path[len(path)-1]
	switch last.Local {
	case "entry":
		return xml.Name{Space: last.Space, Local: "id"}
	case "item":
		return xml.Name{Space: last.Space, Local: "guid"}
	}
	return xml.Name{Local: "none"}
}

// treeWriter writes down what encoding/xml reads of an element, so that it can be
// compared: names resolved, text in one piece, no declarations of namespaces.
// What the root has of xml:base and xml:lang is left out.
type treeWriter struct {
	lines []string
	depth int
	text  bool
}

func (w *treeWriter) add(token xml.Token) {
	switch t := token.(type) {
	case xml.StartElement:
		line := fmt.Sprintf("<%s %s", t.Name.Space, t.Name.Local)
		for _, a := range t.Attr {
			inherits := a.Name.Space == xmlURI && (a.Name.Local == "base" || a.Name.Local == "lang")
			if _, ok := declaredPrefix(a.Name); ok || w.depth == 0 && inherits {
				continue
			}
			line += fmt.Sprintf(" %s %s=%q", a.Name.Space, a.Name.Local, a.Value)
		}
		w.write(line)
		w.depth++
	case xml.EndElement:
		w.write(">")
		w.depth--
	case xml.CharData:
		if w.text {
			w.lines[len(w.lines)-1] += string(t)
		} else if len(t) > 0 {
			w.lines = append(w.lines, "text "+string(t))
			w.text = true
		}
	case xml.Comment:
		w.write("comment " + string(t))
	case xml.ProcInst:
		w.write("pi " + t.Target + " " + string(t.Inst))
	}
}

func (w *treeWriter) write(line string) {
	w.lines = append(w.lines, line)
	w.text = false
}

// treeOf reads a standalone element.
func treeOf(body []byte) ([]string, error) {
	d := xml.NewDecoder(bytes.NewReader(body))
	var w treeWriter
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return w.lines, nil
		}
		if err != nil {
			return nil, err
		}
		w.add(token)
	}
}

// read reads a whole document. The error is nil if it is one.
func read(r *Reader) (entries []Entry, err error) {
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
}

func ids(entries []Entry) []string {
	var list []string
	for _, e := range entries {
		list = append(list, e.ID)
	}
	return slices.Clip(list)
}
