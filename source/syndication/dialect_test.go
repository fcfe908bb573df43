package syndication

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

func TestDialects(t *testing.T) {
	t.Parallel()
	link := func(rels ...string) string {
		var b strings.Builder
		for _, rel := range rels {
			b.WriteString(`<link rel="` + rel + `" href="http://ex/` + rel + `"/>`)
		}
		return b.String()
	}
	tests := []struct {
		name, content string
		want          Dialect
		deletes       bool
		odd           []string
	}{
		{"complete", "<fh:complete/>", Complete, true, nil},
		{"case 14: complete with next", "<fh:complete/>" + link("next"), Complete, false, []string{kindMixedDialects}},
		{"case 14: complete with previous", "<fh:complete/>" + link("previous"), Complete, false, []string{kindMixedDialects}},
		{"case 14: complete with first", "<fh:complete/>" + link("first"), Complete, false, []string{kindMixedDialects}},
		{"case 14: complete with last", "<fh:complete/>" + link("last"), Complete, false, []string{kindMixedDialects}},
		{"case 14: complete with prev-archive", "<fh:complete/>" + link("prev-archive"), Complete, false, []string{kindMixedDialects}},
		{"case 14: complete with next-archive", "<fh:complete/>" + link("next-archive"), Complete, false, []string{kindMixedDialects}},
		{"complete archive", "<fh:complete/><fh:archive/>", Complete, true, nil},
		{"case 15: current is self", `<fh:complete/><link rel="self" href="http://ex/1"/><link rel="current" href="http://ex/1"/>`, Complete, true, nil},
		{"case 15: current is not self", `<fh:complete/><link rel="self" href="http://ex/1"/><link rel="current" href="http://ex/2"/>`, Complete, true, []string{kindCurrentNotSelf}},
		{"complete and incremental", "<fh:complete/><fh:incremental>true</fh:incremental>", Incremental, false, []string{kindMixedDialects, kindNoHistory}},
		{"case 78: draft 00, complete", "<fh:Stateful> 0 </fh:Stateful>", Complete, true, nil},
		{"case 84: draft 00, complete with fh:prev", "<fh:stateful>0</fh:stateful><fh:prev>http://ex/1</fh:prev>", Complete, true, []string{kindMixedDialects}},
		{"case 87: draft 04, complete", "<fh:incremental>false</fh:incremental>", Complete, true, nil},
		{"case 87: draft 04, incremental", "<fh:incremental>true</fh:incremental>", Incremental, false, []string{kindNoHistory}},
		{"case 83: a flag that is none", "<fh:stateful>maybe</fh:stateful>", Window, false, nil},
		{"archived", link("prev-archive"), Archived, false, nil},
		{"archived, the oldest", "<fh:archive/>", Archived, false, nil},
		{"case 45: an archive", "<fh:archive/>" + link("current", "next-archive"), Archived, false, nil},
		{"archived and paged", link("prev-archive", "next"), Archived, false, nil},
		{"case 86: fh:prev", "<fh:prev>http://ex/1</fh:prev>", ArchivedElement, false, nil},
		{"case 79: draft 00", "<fh:stateful>1</fh:stateful>" + link("this", "prev"), Snapshots, false, nil},
		{"PaceFeedState", link("this", "prev"), Snapshots, false, nil},
		{"case 93: prev without this", link("prev"), Paged, false, nil},
		{"paged", link("next"), Paged, false, nil},
		{"case 74: without next", link("first", "last", "previous"), Paged, false, nil},
		{"case 88: draft 05 looks paged", link("previous", "current"), Paged, false, nil},
		{"window", link("self", "alternate", "hub"), Window, false, nil},
		{"two links of a kind", link("next") + `<link rel="next" href="http://ex/b"/>`, Paged, false, []string{kindRepeatedLink}},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			r := feedxml.NewReader(strings.NewReader(`<feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0">`+tt.content+`</feed>`), feedxml.Options{URL: "http://ex/feed"})
			if _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			got, deletes, odd := dialectOf(r.Meta())
			if got != tt.want || deletes != tt.deletes {
				t.Errorf("got %s, %v", got, deletes)
			}
			var kinds []string
			for _, v := range odd {
				kinds = append(kinds, v.Kind)
			}
			if !slices.Equal(kinds, tt.odd) {
				t.Errorf("violations %q, want %q", kinds, tt.odd)
			}
		})
	}
}
