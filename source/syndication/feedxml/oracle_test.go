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

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// found is an entry as encoding/xml reads it.
type found struct {
	ids        map[IDSource]string // of the elements that have an ID, and of the ref of a tombstone
	start, end int                 // in the document
	tree       []string            // its content, with names resolved
}

// oracle splits a document in UTF-8 with encoding/xml.
func oracle(tb testing.TB, doc []byte) []found {
	tb.Helper()
	entries, err := oracleEntries(doc)
	must.Succeed(tb, err)
	return entries
}

// oracleEntries returns the entries that encoding/xml finds. A feed in no namespace is read as Atom, and so are its
// elements in no namespace.
func oracleEntries(doc []byte) (entries []found, err error) {
	d := xml.NewDecoder(bytes.NewReader(doc))
	var path []xml.Name
	var current *found
	var tree treeWriter
	var id strings.Builder
	entryDepth := 0
	bare := false
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
			bare = bare || path == nil && t.Name == xml.Name{Local: "feed"}
			if bare && slices.Contains(t.Attr, xml.Attr{Name: xml.Name{Local: "xmlns"}}) {
				return nil, errNoDefault
			}
			if bare && t.Name.Space == "" {
				t.Name.Space = AtomNamespace
				token = t
			}
			path = append(path, t.Name)
			if current == nil && isOracleEntry(path) {
				entries = append(entries, found{start: at, ids: map[IDSource]string{}})
				current, entryDepth = &entries[len(entries)-1], len(path)
				tree = treeWriter{}
				if t.Name.Local == "deleted-entry" {
					current.ids[FromID] = oracleRef(t)
				}
			}
			if len(path) == entryDepth+1 {
				id.Reset()
			}
		case xml.CharData:
			id.Write(t)
		}
		if current != nil {
			tree.add(token)
		}
		if _, ok := token.(xml.EndElement); ok {
			switch {
			case current == nil:
			case len(path) == entryDepth+1:
				if from := oracleIDSource(path); from != "" && current.ids[from] == "" {
					current.ids[from] = trimSpace(id.String())
				}
			case len(path) == entryDepth:
				current.end = int(d.InputOffset())
				current.tree = tree.lines
				current = nil
			}
			path = path[:len(path)-1]
		}
	}
}

// errNoDefault is the error about a document without a namespace that ends a default namespace: encoding/xml
// does not distinguish elements that have none for that reason.
var errNoDefault = errors.New("xmlns is empty")

// oracleSpace returns the namespace of the last element of a path. RSS can be in any namespace, and the
// root element shows in which.
func oracleSpace(path []xml.Name) space {
	root, last := path[0], path[len(path)-1]
	in := spaceOf(last.Space)
	if in == foreign && root.Local == "rss" && last.Space == root.Space {
		return rss
	}
	return in
}

// oracleFormat returns the format of a document, and the namespace of its elements.
func oracleFormat(root xml.Name) (format Format, own space) {
	path := []xml.Name{root}
	switch in := oracleSpace(path); {
	case in == atom && root.Local == "feed":
		return Atom, atom
	case in == rdf && root.Local == "RDF":
		return RDF, rss
	case root.Local == "rss":
		return RSS, in
	}
	return "", foreign
}

func isOracleEntry(path []xml.Name) bool {
	depth, in, local := len(path)-1, oracleSpace(path), path[len(path)-1].Local
	if depth == 0 {
		return in == atom && local == "entry" || in == tombstones && local == "deleted-entry"
	}
	format, own := oracleFormat(path[0])
	group := xml.Name{Local: "channel"}
	if format == Atom {
		group.Local = "head"
	}
	if format == "" || depth > 2 || depth == 2 && (oracleSpace(path[:2]) != own || path[1].Local != group.Local) {
		return false
	}
	switch local {
	case "entry":
		return in == atom && format == Atom && depth == 1
	case "item":
		return in == own && format != Atom
	}
	return in == tombstones && local == "deleted-entry"
}

// oracleIDSource returns what the ID of an entry is from if it is the text of the last element of
// the path, a child of the entry.
func oracleIDSource(path []xml.Name) IDSource {
	parent, in, local := path[len(path)-2], oracleSpace(path), path[len(path)-1].Local
	format, own := oracleFormat(path[0])
	switch {
	case parent.Local == "deleted-entry":
	case local == "id" && in == atom:
		return FromID
	case local == "guid" && in == own && format != Atom && format != "":
		return FromGUID
	}
	return ""
}

// oracleRef returns the ID of the entry that a tombstone deletes.
func oracleRef(t xml.StartElement) string {
	for _, a := range t.Attr {
		if a.Name.Local == "ref" && spaceOf(a.Name.Space) == noSpace {
			return trimSpace(a.Value)
		}
	}
	return ""
}

// blanks replaces the line ends and tabs that encoding/xml keeps in attributes.
var blanks = strings.NewReplacer("\n", " ", "\t", " ", "\r", " ")

func sameID(a, b string) bool { return blanks.Replace(a) == blanks.Replace(b) }

// treeWriter writes an element as encoding/xml reads it, in a form that can be compared:
// names resolved, text in one piece, no declarations of namespaces. xml:base and xml:lang
// of the root are left out.
type treeWriter struct {
	lines []string
	depth int
	text  bool
}

func (w *treeWriter) add(token xml.Token) {
	switch t := token.(type) {
	case xml.StartElement:
		line := fmt.Sprintf("<%s %s", blanks.Replace(t.Name.Space), t.Name.Local)
		for _, a := range t.Attr {
			inherits := a.Name.Space == xmlURI && (a.Name.Local == "base" || a.Name.Local == "lang")
			if a.Name.Space == "xmlns" || a.Name == (xml.Name{Local: "xmlns"}) || w.depth == 0 && inherits {
				continue
			}
			line += fmt.Sprintf(" %s %s=%q", blanks.Replace(a.Name.Space), a.Name.Local, a.Value)
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
