package engine

import "encoding/json"

// Models is an immutable reading of an engine's GET /v1/models.
type Models struct {
	// IDs are the served model and LoRA names in the engine's order.
	IDs []string
	// Objects are the raw JSON objects of the list's data array, one for
	// each ID, so that no key is lost when lists are merged.
	Objects [][]byte
	// Raw is the whole body as received.
	Raw []byte

	byID     map[string]int
	adapters map[string]bool
	root     string
}

// NewModels indexes ids and their raw objects, which must have equal length.
func NewModels(ids []string, objects [][]byte, raw []byte) *Models {
	if len(ids) != len(objects) {
		panic("BUG: model ids and objects differ in number")
	}
	m := &Models{IDs: ids, Objects: objects, Raw: raw, byID: make(map[string]int, len(ids))}
	for i, id := range ids {
		if _, dup := m.byID[id]; !dup {
			m.byID[id] = i
		}
		m.read(id, objects[i])
	}
	return m
}

// read takes from a model's object what vLLM tells beyond OpenAI: an adapter
// names its model as parent, and a model where it was loaded from as root.
func (m *Models) read(id string, object []byte) {
	var o struct {
		Root   *string `json:"root"`
		Parent *string `json:"parent"`
	}
	if json.Unmarshal(object, &o) != nil {
		return
	}
	switch {
	case o.Parent != nil && *o.Parent != "":
		if m.adapters == nil {
			m.adapters = map[string]bool{}
		}
		m.adapters[id] = true
	case m.root == "" && o.Root != nil:
		m.root = *o.Root
	}
}

// Adapter reports whether id names a LoRA adapter in the list.
func (m *Models) Adapter(id []byte) bool { return m != nil && m.adapters[string(id)] }

// Root returns what the engine loaded its model from, a name on the Hugging
// Face hub or a folder; "" if it does not tell.
func (m *Models) Root() string {
	if m == nil {
		return ""
	}
	return m.root
}

// Serves reports whether id is in the list. A nil list serves nothing.
func (m *Models) Serves(id []byte) bool {
	if m == nil {
		return false
	}
	_, ok := m.byID[string(id)]
	return ok
}

// Name returns the list's own copy of id, "" if it is not listed. It allocates
// nothing.
func (m *Models) Name(id []byte) string {
	if m == nil {
		return ""
	}
	if i, ok := m.byID[string(id)]; ok {
		return m.IDs[i]
	}
	return ""
}

// Object returns the raw JSON object of id, nil if it is not listed.
func (m *Models) Object(id string) []byte {
	if m == nil {
		return nil
	}
	i, ok := m.byID[id]
	if !ok {
		return nil
	}
	return m.Objects[i]
}
