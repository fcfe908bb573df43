package statuspage

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// PageSize is the number of rows of a page.
const PageSize = 50

// longestSearch limits Query.Search, in bytes.
const longestSearch = 200

// Query selects rows of a table.
type Query struct {
	// Search is a part of the name, URL, bus or topic, in lower case; "" selects all.
	Search string
	// State is a state; "" selects all.
	State string
	// Sort is the column to sort by, and Descending the order. Rows that are equal in it are
	// sorted by name. Rows whose value is not known come last.
	Sort       Column
	Descending bool
	// Page is the number of the page, from 1. A page has PageSize rows.
	Page int
}

// Column is a column of the table of feeds.
type Column string

// The columns to sort by. By state, the states that need a person come first.
const (
	ByState  Column = "state"
	ByName   Column = "name"
	ByTotal  Column = "entities"
	ByLag    Column = "lag"
	ByRecent Column = "recent"
	ByCommit Column = "commit"
	ByNext   Column = "next"
)

// feedColumns are the columns of the table of feeds. It is sorted by the first.
var feedColumns = []Column{ByState, ByName, ByTotal, ByLag, ByRecent, ByCommit, ByNext}

// parseQuery reads a query of the columns. An invalid value gets its default.
func parseQuery(v url.Values, columns []Column) Query {
	q := Query{Search: strings.ToLower(strings.TrimSpace(v.Get("q"))), State: v.Get("state"), Page: 1}
	if len(q.Search) > longestSearch {
		q.Search = q.Search[:longestSearch]
	}
	if !utf8.ValidString(q.Search) {
		q.Search = strings.ToValidUTF8(q.Search, "")
	}
	if len(columns) > 0 {
		q.Sort = columns[0]
		if sort := Column(strings.TrimPrefix(v.Get("sort"), "-")); slices.Contains(columns, sort) {
			q.Sort, q.Descending = sort, strings.HasPrefix(v.Get("sort"), "-")
		}
	}
	if n, err := strconv.Atoi(v.Get("page")); err == nil && n > 1 {
		q.Page = n
	}
	return q
}

// String returns the query as the query of a URL; "" for the default.
func (q Query) String() string {
	v := url.Values{}
	if q.Search != "" {
		v.Set("q", q.Search)
	}
	if q.State != "" {
		v.Set("state", q.State)
	}
	if sort := q.sortValue(); sort != "" {
		v.Set("sort", sort)
	}
	if q.Page > 1 {
		v.Set("page", strconv.Itoa(q.Page))
	}
	return v.Encode()
}

// sortValue returns the order as in a URL; "" for the default.
func (q Query) sortValue() string {
	switch {
	case q.Descending:
		return "-" + string(q.Sort)
	case q.Sort == feedColumns[0]:
		return ""
	}
	return string(q.Sort)
}

// Slice returns the indexes of the rows of the page, of n rows that are selected. A page after the last
// one is the last.
func (q Query) Slice(n int) (from, to int) {
	from = (min(q.Page, lastPage(n)) - 1) * PageSize
	return from, min(n, from+PageSize)
}

// lastPage returns the number of the last page of n rows.
func lastPage(n int) int { return max(1, (n+PageSize-1)/PageSize) }

// severities orders the states: those that need a person come first. A state that is not here
// comes after those that do.
var severities = []string{"halted", "retrying", "starting", "", "reading", "paused", "standby", "idle", "stopped", "elsewhere"}

// Severity returns the rank of a state in the order of feeds by state.
func Severity(state string) int {
	if i := slices.Index(severities, state); i >= 0 {
		return i
	}
	return slices.Index(severities, "")
}
