// Reads messages as a program does that decodes them into structs with encoding/json, which matches the names of members
// without regard to case. What the lines are says `reading.py`.
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"sort"
	"strings"
	"unicode/utf16"
)

const refused = "refused"

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      any             `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type params struct {
	Name      *string        `json:"name"`
	Arguments map[string]any `json:"arguments"`
	URI       *string        `json:"uri"`
	TaskID    *string        `json:"taskId"`
	Ref       struct {
		Type string  `json:"type"`
		Name *string `json:"name"`
		URI  *string `json:"uri"`
	} `json:"ref"`
}

func quoted(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"':
			out.WriteString(`\"`)
		case c == '\\':
			out.WriteString(`\\`)
		case c == '\n':
			out.WriteString(`\n`)
		case c == '\r':
			out.WriteString(`\r`)
		case c == '\t':
			out.WriteString(`\t`)
		case c == '\b':
			out.WriteString(`\b`)
		case c == '\f':
			out.WriteString(`\f`)
		case c >= ' ' && c < 0x7f:
			out.WriteRune(c)
		case c < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func double(number json.Number) string {
	value, err := number.Float64()
	if err != nil {
		value = math.Inf(1)
		if exact, ok := new(big.Float).SetString(string(number)); ok && exact.Sign() < 0 {
			value = math.Inf(-1)
		}
	}
	return fmt.Sprintf("n%016x", math.Float64bits(value+0))
}

func canonical(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(value)
	case string:
		return quoted(value)
	case json.Number:
		return double(value)
	case []any:
		items := make([]string, len(value))
		for at, item := range value {
			items[at] = canonical(item)
		}
		return "[" + strings.Join(items, ",") + "]"
	case map[string]any:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		members := make([]string, len(keys))
		for at, key := range keys {
			members[at] = quoted(key) + ":" + canonical(value[key])
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	return refused
}

func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return fmt.Errorf("more than one value")
	}
	return nil
}

func text(value *string) string {
	if value == nil {
		return "-"
	}
	return quoted(*value)
}

func read(source []byte) string {
	var found message
	if !json.Valid(source) || decode(source, &found) != nil || found.JSONRPC != "2.0" {
		return refused
	}
	fields := []string{"request", text(found.Method), "-", "-", "-", "-"}
	switch id := found.ID.(type) {
	case nil:
		fields[0] = "notification"
	case string, json.Number:
		fields[2] = canonical(id)
	default:
		return refused
	}
	if found.Method == nil {
		fields[0] = "response"
		return strings.Join(fields, "\t")
	}
	if fields[0] == "notification" {
		return strings.Join(fields, "\t")
	}
	var named params
	if found.Params != nil && decode(found.Params, &named) != nil {
		return refused
	}
	switch *found.Method {
	case "tools/call", "prompts/get":
		fields[3] = text(named.Name)
		if named.Arguments != nil {
			fields[4] = canonical(named.Arguments)
		}
	case "resources/read", "resources/subscribe", "resources/unsubscribe", "skills/get":
		fields[5] = text(named.URI)
	case "completion/complete":
		fields[3] = text(named.Ref.URI)
		if named.Ref.Type == "ref/prompt" {
			fields[3] = text(named.Ref.Name)
		}
	case "tasks/get", "tasks/result", "tasks/update", "tasks/cancel":
		fields[3] = text(named.TaskID)
	}
	return strings.Join(fields, "\t")
}

func main() {
	input, output := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			output.Flush()
			continue
		}
		_, digits, _ := strings.Cut(line, " ")
		source, err := hex.DecodeString(digits)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(output, read(source))
	}
}
