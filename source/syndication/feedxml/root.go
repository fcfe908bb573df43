package feedxml

import (
	"bytes"
	"errors"
	"strings"
)

// rootReader reads a document.
type rootReader struct {
	containerReader
	// rootRepaired is one more than the offset of the root's start tag, if that was
	// repaired. htmlDoctype reports that the document has the document type declaration
	// of HTML.
	rootRepaired int64
	htmlDoctype  bool
	assumedUTF8  bool // nothing at the beginning of the document, and no header, names its encoding
}

// readRoot reads the document up to the end of the root's start tag, and detects its
// format. found reports that the root is an entry itself, which is e.
func (r *rootReader) readRoot() (e Entry, found bool, err error) {
	for {
		e, found, err := r.readRootElement()
		if err == nil {
			return e, found, nil
		}
		if err := r.repairRoot(err); err != nil {
			return Entry{}, false, err
		}
	}
}

// repairRoot repairs the start tag of the root element, or skips text before it, so
// that it can be read again. It returns cause if it cannot.
func (r *rootReader) repairRoot(cause error) error {
	if r.format != "" {
		return cause
	}
	b := r.in.unreadBytes()
	if r.opts.Lenient && errors.Is(cause, ErrMalformed) && r.rootRepaired != r.in.offset+1 && rootTag.Match(b[:min(len(b), 100)]) && rootTag.FindIndex(b)[0] == 0 && isNameStart[b[1]] {
		r.rootRepaired = r.in.offset + 1
		return r.repairChild(childState{limit: max(r.opts.Limits.Entry, r.opts.Limits.Head)}, cause)
	}
	if r.opts.Lenient {
		cause = r.skipJunk(cause)
	}
	if cause != nil && (r.htmlDoctype || htmlStart.Match(r.pieceBytes(mostJunk))) {
		return htmlError(&r.tokenizer)
	}
	return cause
}

// readRootElement is [rootReader.readRoot] once the encoding is known.
func (r *rootReader) readRootElement() (e Entry, found bool, err error) {
	if err := r.readProlog(); err != nil {
		return Entry{}, false, err
	}
	// HTML is recognised by its name only: the rest of its tag need not be XML.
	nameEnd, err := r.readToken(r.opts.Limits.Head, func(b []byte) (int, *syntaxError) {
		for i := 1; i < len(b); i++ {
			if !isName[b[i]] {
				return i, nil
			}
		}
		return 0, nil
	})
	if err != nil {
		return Entry{}, false, err
	}
	if _, local := cutPrefix(r.in.unreadBytes()[1:nameEnd]); strings.EqualFold(string(local), "html") || htmlStart.Match(r.pieceBytes(mostJunk)) {
		return Entry{}, false, htmlError(&r.tokenizer)
	}
	t, err := r.readStartTag(r.opts.Limits.Head)
	if err != nil {
		return Entry{}, false, err
	}
	if r.expandHere(t.end) {
		return r.readRootElement()
	}
	base, _ := resolveLink("", r.opts.URL)
	outer := container{scope: scope{base: base, bindings: []binding{{prefix: "xml", uri: xmlURI}}}}
	b := r.in.unreadBytes()
	scope := r.innerScope(&outer.scope, b, t)
	in, local, declared := scope.resolveName(b[1:t.nameEnd])
	bare := in.uri == "" && string(b[1:t.nameEnd]) == "feed"
	if bare {
		// Entries get the namespace, as if it were declared.
		in = binding{uri: AtomNamespace, space: atom}
		scope.bindings = append(scope.bindings, in)
	}
	if !declared {
		return Entry{}, false, r.errorAt(ErrNotFeed, 0, "the prefix of the root element %s is not declared", Excerpt(b[1:t.nameEnd]))
	}
	format, single := formatOf(in, string(local))
	if format == "" && r.htmlDoctype {
		return Entry{}, false, htmlError(&r.tokenizer)
	}
	if format == "" {
		return Entry{}, false, noFeedError(&r.tokenizer, in.uri, string(local))
	}
	meta := &r.about.meta
	r.setFormat(format, in, &scope)
	meta.Format = format
	switch format {
	case RSS:
		r.attrs = attributes(r.attrs[:0], b, t)
		version, _ := r.attribute(&scope, noSpace, "version")
		meta.Version = clipText(trimSpace(version))
	case Atom:
		if r.named = !bare; bare {
			r.violationf(kindMissingNamespace, "the root element feed is in no namespace, and is read as Atom")
		}
	}
	if !single {
		return Entry{}, false, r.enterContainer(t, scope)
	}
	e, again, err := r.readEntry(t, &outer, &scope, in.space == tombstones)
	if again {
		return r.readRootElement()
	}
	return e, err == nil, err
}

// detectCharset detects the encoding by the first bytes of the document.
func (r *rootReader) detectCharset() error {
	if r.charset != "" {
		return nil // the root is read again
	}
	d, err := decodeDocument(r.in.r, r.opts.ContentType, r.opts.Lenient)
	if err != nil {
		r.in.err = err // no part of it can be read or quoted
		return r.errorAt(ErrCharset, 0, "the document's encoding is %s", err.Error())
	}
	if d.mismatch != "" {
		r.violationf(kindCharsetMismatch, "%s", d.mismatch)
	}
	r.in.r, r.charset, r.assumedUTF8 = d.r, d.charset, d.assumed
	r.in.replaced, r.in.mixed, r.in.strictUTF8 = !strings.HasPrefix(d.charset, "utf-"), d.mixed, d.unknown
	if d.fault != "" {
		r.recordRepair(ErrCharset, 0, d.fault)
	}
	return nil
}

// readProlog skips the declarations, comments and instructions before the root element.
func (r *rootReader) readProlog() error {
	limit := r.opts.Limits.Head
	for {
		if err := r.skipBlanks(); err != nil {
			return err
		}
		b := r.in.unreadBytes()
		if isNameStart[b[1]] {
			return nil
		}
		late := r.in.offset > 0
		end, err := r.readToken(limit, func(b []byte) (int, *syntaxError) {
			switch {
			case len(b) < len(openDoctype) && bytes.EqualFold(openDoctype[:len(b)], b):
				return 0, nil
			case len(b) >= len(openDoctype) && bytes.EqualFold(openDoctype, b[:len(openDoctype)]):
				return r.scan.scanDoctype(b, 0)
			}
			return r.scan.scanMarkup(b, 0)
		})
		r.htmlDoctype = r.htmlDoctype || htmlDoctype.Match(r.pieceBytes(mostJunk))
		if err == nil {
			err = r.readPrologToken(end, late)
		}
		if err != nil {
			return err
		}
		r.in.discardBytes(end)
	}
}

// readPrologToken reads the next declaration, comment or instruction, which has end bytes.
// late reports that it is not at the beginning of the document.
func (r *rootReader) readPrologToken(end int, late bool) error {
	switch token := r.in.unreadBytes()[:end]; {
	case isDeclaration(token):
		if written := declaredCharset(token); late && r.assumedUTF8 && written != "" && !isASCII(written) {
			if _, charset, _ := lookupCharset(written); charset != r.charset {
				return r.errorAt(ErrCharset, 0, "the encoding %q is declared after other content, so it is not known when the reading begins", Excerpt(written))
			}
		}
		if late {
			r.violationf(kindLateDeclaration, "the XML declaration is not at the beginning of the document; strict readers refuse it")
		}
	case token[1] == '?' || bytes.HasPrefix(token, openComment):
	case bytes.HasPrefix(token, openDoctype):
		r.entities.readDoctype(token)
	case len(token) > len(openDoctype) && bytes.EqualFold(openDoctype, token[:len(openDoctype)]):
		return r.errorAt(ErrMalformed, 0, "a declaration begins with %s", Excerpt(token[:len(openDoctype)]))
	default:
		return r.errorAt(ErrMalformed, 0, "there is text before the root element")
	}
	return nil
}

func isDeclaration(b []byte) bool {
	return len(b) > 5 && string(b[:5]) == "<?xml" && isSpace[b[5]]
}

func noFeedError(r *tokenizer, uri, local string) error {
	where := "in no namespace"
	if uri != "" {
		where = "of " + Excerpt(uri)
	}
	return r.errorAt(ErrNotFeed, 0, "the root element is %s %s, which is no feed's", Excerpt(local), where)
}
