package config

import (
	"encoding"
	"fmt"
	"reflect"
	"testing"
	"time"
)

func TestInterpolate(t *testing.T) {
	t.Parallel()
	environ := map[string]string{"A": "a", "EMPTY": "", "DOLLARS": "${A}$${A}"}
	for text, want := range map[string]string{
		"":                      "",
		"plain $5 $A }":         "plain $5 $A }",
		"${A}${A}-${EMPTY}":     "aa-",
		"${EMPTY:-b}${NONE:-c}": "bc",
		"${NONE:-}${A:-b}":      "a",
		"${NONE:-a:-b {c}":      "a:-b {c",
		"$${A} $$${A}":          "${A} $${A}",
		"${DOLLARS}":            "${A}$${A}",
	} {
		got, err := interpolate(text, environ)
		if err != nil || got != want {
			t.Errorf("%s becomes %q (error %v), want %q", text, got, err, want)
		}
		if back, err := interpolate(escapeVariables(text), environ); err != nil || back != text {
			t.Errorf("%s, escaped, becomes %q (error %v)", text, back, err)
		}
	}
	for _, text := range []string{"${NONE}", "${", "${A", "${}", "${1}", "${A:b}", "${A-b}", "${NONE:-${A}}"} {
		if got, err := interpolate(text, environ); err == nil {
			t.Errorf("%s becomes %q, want an error", text, got)
		}
	}
}

func TestTextOfValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value   any
		text    string
		refused []string
	}{
		{true, "true", []string{"", "yes", "True", "1"}},
		{1000, "1000", []string{"", "1_000", "0x10", "1e3", "99999999999999999999"}},
		{int64(-7), "-7", []string{"7 ", "7MB"}},
		{0.25, "0.25", []string{"", "nan", "inf", "1e999"}},
		{90 * time.Second, "1m30s", []string{"", "0", "90", "1.5", "2d", "1 s"}},
		{24 * time.Hour, "24h", nil},
		{5*time.Hour + time.Second, "5h0m1s", nil},
		{time.Duration(0), "0s", nil},
		{Level("warn"), "warn", []string{"", "WARN", "warning"}},
		{"any # [text", "any # [text", nil},
	} {
		typ := reflect.TypeOf(c.value)
		if got := encodeText(reflect.ValueOf(c.value)); got != c.text {
			t.Errorf("%v is written as %s, want %s", c.value, got, c.text)
		}
		if got, err := decodeText(typ, c.text); err != nil || got.Interface() != c.value {
			t.Errorf("%s is read as %v (error %v), want %v", c.text, got, err, c.value)
		}
		for _, text := range c.refused {
			if got, err := decodeText(typ, text); err == nil {
				t.Errorf("%q is read as the %s %v, want an error", text, typ, got)
			}
		}
	}
}

// Every value that an enumeration lists is one that its UnmarshalText accepts.
func TestEnumsAgreeWithAdapters(t *testing.T) {
	t.Parallel()
	found := 0
	root.forEachSetting(func(s *spec) {
		for _, word := range enumWords(s.typ) {
			found++
			v := reflect.New(s.typ)
			u, ok := v.Interface().(encoding.TextUnmarshaler)
			if !ok {
				continue
			}
			if err := u.UnmarshalText([]byte(word)); err != nil || fmt.Sprint(v.Elem()) != word {
				t.Errorf("%s: %s is read as %v (error %v)", s.path, word, v.Elem(), err)
			}
		}
	})
	if found < 50 {
		t.Errorf("only %d values were found", found)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"url", "max_age", "max_bytes", "to.stream"}
	for word, want := range map[string]string{
		"ulr": "url", "uri": "url", "URL": "url", "maxAge": "max_age", "max-ages": "max_age", "maxbites": "max_bytes",
		"colour": "", "x": "", "": "",
	} {
		if got := nearestWord(word, known); got != want {
			t.Errorf("%q is taken for %q, want %q", word, got, want)
		}
	}
}
