package feedxml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestEncodings(t *testing.T) {
	t.Parallel()
	wide := func(order unicode.Endianness, bom unicode.BOMPolicy) encoding.Encoding {
		return unicode.UTF16(order, bom)
	}
	tests := []struct {
		name        string
		enc         encoding.Encoding // nil: UTF-8
		declaration string
		contentType string
		id          string
		mark        string
		odd         []string
	}{
		{"UTF-8 without a declaration", nil, "", "", "é€日", "", nil},
		{"case 124: UTF-8 with a byte order mark", nil, `<?xml version="1.0" encoding="UTF-8"?>`, "", "é€日", "\ufeff", nil},
		{"case 115: ISO-8859-1", charmap.Windows1252, `<?xml version="1.0" encoding="ISO-8859-1"?>`, "", "éü", "", nil},
		{"case 115: windows-1252", charmap.Windows1252, `<?xml version='1.0' encoding='windows-1252'?>`, "", "é€“", "", nil},
		{"case 115: UTF-16LE with a mark", wide(unicode.LittleEndian, unicode.UseBOM), `<?xml version="1.0" encoding="UTF-16"?>`, "", "é€日", "", nil},
		{"case 115: UTF-16BE with a mark", wide(unicode.BigEndian, unicode.UseBOM), "", "", "é€日", "", nil},
		{"UTF-16LE without a mark", wide(unicode.LittleEndian, unicode.IgnoreBOM), `<?xml version="1.0" encoding="UTF-16LE"?>`, "application/xml", "é€日", "", nil},
		{"UTF-16BE, as is sent", wide(unicode.BigEndian, unicode.IgnoreBOM), "", "application/xml; charset=utf-16be", "é€日", "", nil},
		{"KOI8-R", charmap.KOI8R, `<?xml version="1.0" encoding="koi8-r"?>`, "", "день", "", nil},
		{"Shift_JIS", japanese.ShiftJIS, `<?xml version="1.0" encoding="Shift_JIS"?>`, "", "日本", "", nil},
		{"case 115: the Content-Type says so", charmap.ISO8859_2, "", `application/atom+xml;charset="ISO-8859-2"`, "ćž", "", nil},
		{"case 115: the Content-Type goes before the declaration", charmap.ISO8859_2, `<?xml version="1.0" encoding="UTF-8"?>`, `application/atom+xml; charset=iso-8859-2`, "ćž", "", []string{kindCharsetMismatch}},
		{"they say the same by two names", charmap.Windows1252, `<?xml version="1.0" encoding="latin1"?>`, `text/xml; charset=ISO-8859-1`, "é", "", nil},
		{"the mark goes before both", nil, `<?xml version="1.0" encoding="ISO-8859-1"?>`, `text/xml; charset=ISO-8859-1`, "é", "\ufeff", []string{kindCharsetMismatch}},
		{"bytes that cannot be UTF-16", nil, `<?xml version="1.0" encoding="utf-16"?>`, "", "é", "", []string{kindCharsetMismatch}},
		{"UTF-8 labelled as ASCII", nil, `<?xml version="1.0" encoding="us-ascii"?>`, "", "é€日", "", nil},
		{"UTF-8 that is sent as ASCII", nil, `<?xml version="1.0" encoding="utf-8"?>`, "text/xml; charset=us-ascii", "é€日", "", nil},
		{"windows-1252 labelled as ASCII", charmap.Windows1252, `<?xml version="1.0" encoding="US-ASCII"?>`, "", "café “ü", "", nil},
		{"a late declaration of another, which does not count", nil, `<!-- c --><?xml version="1.0" encoding="windows-1251"?>`, "text/xml; charset=utf-8", "é", "", []string{kindLateDeclaration}},
		{"a late declaration of ASCII", nil, `<!-- c --><?xml version="1.0" encoding="us-ascii"?>`, "", "é", "", []string{kindLateDeclaration}},
		{"utf_8", nil, `<?xml version="1.0" encoding="utf_8"?>`, "", "é€日", "", nil},
		{"'utf-8' in quotes", nil, "", `text/xml; charset='utf-8'`, "é€日", "", nil},
		{"none", nil, "", `text/xml; charset=none`, "é€日", "", nil},
		{"none, and a declaration", charmap.KOI8R, `<?xml version="1.0" encoding="koi8-r"?>`, `text/xml; charset=none`, "день", "", nil},
		{"a declaration of none", nil, `<?xml version="1.0" encoding="none"?>`, "", "é€日", "", nil},
		{"a Content-Type that cannot be read", nil, "", `text/xml; charset=`, "é", "", nil},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			doc := tt.mark + tt.declaration + `<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>` + tt.id + `</id></entry></feed>`
			if tt.enc != nil {
				var err error
				if doc, err = tt.enc.NewEncoder().String(doc); err != nil {
					t.Fatal(err)
				}
			}
			r := NewReader(strings.NewReader(doc), Options{ContentType: tt.contentType})
			entries, err := read(r)
			must.Succeed(t, err)
			want := `<entry xmlns="http://www.w3.org/2005/Atom"><id>` + tt.id + `</id></entry>`
			if len(entries) != 1 || entries[0].ID != tt.id || string(entries[0].Body) != want {
				t.Errorf("got %q, %s", ids(entries), entries[0].Body)
			}
			if odd := kinds(r.Violations()); !slices.Equal(odd, tt.odd) {
				t.Errorf("got %q", odd)
			}
			if format, err := Detect(strings.NewReader(doc), Options{ContentType: tt.contentType}); format != Atom {
				t.Errorf("Detect: got %q, %v", format, err)
			}
		})
	}
}

func TestUnreadableEncodings(t *testing.T) {
	t.Parallel()
	feed := `<feed xmlns="http://www.w3.org/2005/Atom"><id>%s</id></feed>`
	tests := []struct {
		name, doc string
		want      error
		lenient   bool // a lenient reader refuses it, too
	}{
		{"one that nobody knows", `<?xml version="1.0" encoding="x-unknown"?>` + fmt.Sprintf(feed, ""), ErrCharset, false},
		{"one that nobody knows, and is not UTF-8", `<?xml version="1.0" encoding="x-unknown"?>` + fmt.Sprintf(feed, "\xe9t\xe9"), ErrCharset, true},
		{"UTF-7", `<?xml version="1.0" encoding="utf-7"?>` + fmt.Sprintf(feed, ""), ErrCharset, true},
		{"one that is only there to refuse", `<?xml version="1.0" encoding="iso-2022-kr"?>` + fmt.Sprintf(feed, ""), ErrCharset, true},
		{"another in a late declaration", `<!-- c --><?xml version="1.0" encoding="windows-1251"?>` + fmt.Sprintf(feed, "\xe4"), ErrCharset, true},
		{"UTF-32", "\xff\xfe\x00\x00<\x00\x00\x00", ErrCharset, true},
		{"UTF-32 without a mark", "\x00\x00\x00<", ErrCharset, true},
		{"bytes that are not UTF-8", fmt.Sprintf(feed, "\xe9t\xe9"), ErrCharset, false},
		{"a surrogate in UTF-8", fmt.Sprintf(feed, "\xed\xa0\x80"), ErrCharset, false},
		{"bytes that Shift_JIS does not have", `<?xml version="1.0" encoding="Shift_JIS"?>` + fmt.Sprintf(feed, "\xfd\xff"), ErrCharset, false},
		{"NUL", fmt.Sprintf(feed, "a\x00b"), ErrMalformed, false},
		{"a control character", fmt.Sprintf(feed, "a\x1bb"), ErrMalformed, false},
		{"a control character in a comment", fmt.Sprintf(feed, "<!-- \x01 -->"), ErrMalformed, false},
		{"a character that Unicode does not have", fmt.Sprintf(feed, "\uffff"), ErrCharset, false},
		{"a control character by number", fmt.Sprintf(feed, "&#27;"), ErrMalformed, false},
		{"a surrogate by number", fmt.Sprintf(feed, "&#xd800;"), ErrMalformed, false},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			_, err := readEveryWay(t, tt.doc, Options{})
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
			if !tt.lenient {
				return
			}
			if _, err := readEveryWay(t, tt.doc, Options{Lenient: true}); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), "is not known") {
				t.Errorf("leniently: got %v", err)
			}
		})
	}
}

func TestLegal(t *testing.T) {
	t.Parallel()
	// Every character, at every place of a word of eight bytes.
	for c := range rune(0x800) {
		for pad := range 9 {
			s := strings.Repeat("a", pad) + string(c) + strings.Repeat("b", 9)
			n, bad := legalPrefix([]byte(s), false)
			if bad == isChar(c) || !bad && n != len(s) || bad && n != pad {
				t.Fatalf("U+%04X at %d: got %d, %v", c, pad, n, bad)
			}
		}
	}
	for c := rune(0x800); c <= 0x10ffff; c += 7 {
		if c >= 0xd800 && c <= 0xdfff {
			continue
		}
		s := string(c)
		if n, bad := legalPrefix([]byte(s), false); bad == isChar(c) || !bad && n != len(s) {
			t.Fatalf("U+%04X: got %d, %v", c, n, bad)
		}
		if n, bad := legalPrefix([]byte(s[:len(s)-1]), false); bad || n != 0 {
			t.Fatalf("half of U+%04X: got %d, %v", c, n, bad)
		}
	}
}
