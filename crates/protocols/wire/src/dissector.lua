-- The part of the dissector that is the same for every protocol. It walks the tables that follow it, one per
-- protocol, and registers what they describe. Lua 5.1 to 5.4, Wireshark 3.6 and later.

local experts_unknown = expert.group.UNDECODED
local experts_malformed = expert.group.MALFORMED

-- Exact decimal text of an integer with implied places: 1909940, 4 -> 190.9940
local function decimal_text(raw, places)
    local digits, sign = tostring(raw), ""
    if digits:sub(1, 1) == "-" then digits, sign = digits:sub(2), "-" end
    if places == 0 then return sign .. digits end
    if #digits <= places then digits = string.rep("0", places + 1 - #digits) .. digits end
    return sign .. digits:sub(1, -places - 1) .. "." .. digits:sub(-places)
end

-- Splits a 64-bit count of nanoseconds into seconds and the rest without losing digits.
local function seconds_and_nanoseconds(raw)
    local digits = tostring(raw)
    if #digits <= 9 then return 0, tonumber(digits) end
    return tonumber(digits:sub(1, -10)), tonumber(digits:sub(-9))
end

local function clock_text(seconds, nanoseconds)
    local text = string.format("%02d:%02d:%02d", math.floor(seconds / 3600), math.floor(seconds / 60) % 60, seconds % 60)
    if nanoseconds then text = text .. string.format(".%09d", nanoseconds) end
    return text
end

local function date_text(seconds, nanoseconds)
    local text = os.date("!%Y-%m-%dT%H:%M:%S", seconds)
    if nanoseconds then text = text .. string.format(".%09d", nanoseconds) end
    return text .. "Z"
end

local function trimmed(text) return (text:gsub("[ %z]+$", "")) end

local function unsigned(range, little)
    if range:len() <= 4 then
        if little then return range:le_uint() end
        return range:uint()
    end
    if little then return range:le_uint64() end
    return range:uint64()
end

local function signed(range, little)
    if range:len() <= 4 then
        if little then return range:le_int() end
        return range:int()
    end
    if little then return range:le_int64() end
    return range:int64()
end

-- Creates the ProtoFields of a structure and remembers them in its fields.
local function define_fields(protocol, structure, prefix)
    for _, field in ipairs(structure.fields) do
        local name, label = prefix .. "." .. field.name, field.label
        local made, kind = {}, field.kind
        local function add(proto_field) made[#made + 1] = proto_field return proto_field end
        local integer = ({ "uint8", "uint16", "uint24", "uint32", "uint64", "uint64", "uint64", "uint64" })[field.length]
        local signed_integer = ({ "int8", "int16", "int24", "int32", "int64", "int64", "int64", "int64" })[field.length]
        if kind == "unsigned" or kind:find("seconds") then
            field.proto = add(ProtoField[integer](name, label, base.DEC))
        elseif kind == "signed" then
            field.proto = add(ProtoField[signed_integer](name, label, base.DEC))
        elseif kind == "ascii" or kind == "ascii_number" then
            field.proto = add(ProtoField.string(name, label))
        elseif kind == "decimal" then
            field.proto = add(ProtoField.double(name, label))
            local raw = field.signed and signed_integer or integer
            field.proto_raw = add(ProtoField[raw](name .. "_raw", label .. " (integer on the wire)", base.DEC))
        elseif kind == "enum" then
            if field.values.text then
                field.proto = add(ProtoField.string(name, label))
            else
                field.proto = add(ProtoField[integer](name, label, base.DEC))
            end
        elseif kind == "flags" then
            field.proto = add(ProtoField[integer](name, label, base.HEX))
            for _, flag in ipairs(field.flags) do
                flag.proto = flag.proto or {}
                flag.proto[name] = add(ProtoField.bool(name .. "." .. flag.name, flag.label, field.length * 8, nil, flag.mask))
            end
            field.flags_name = name
        elseif kind == "group" then
            define_fields(protocol, field.entry, name)
        elseif kind ~= "blocks" then
            field.proto = add(ProtoField.bytes(name, label))
        end
        for _, proto_field in ipairs(made) do protocol.proto_fields[#protocol.proto_fields + 1] = proto_field end
    end
end

local function define(protocol)
    protocol.proto = Proto("tapeworks_" .. protocol.name, protocol.title)
    protocol.proto_fields = {}
    protocol.by_tag, protocol.by_name = {}, {}
    for _, structure in ipairs(protocol.structures) do
        define_fields(protocol, structure, protocol.name .. "." .. structure.name)
        if structure.tag then protocol.by_tag[structure.tag] = structure end
        protocol.by_name[structure.title] = structure
    end
    protocol.message_type = ProtoField.string(protocol.name .. ".message_type", "Message Type")
    protocol.extension = ProtoField.bytes(protocol.name .. ".extension", "Bytes past the declared length")
    table.insert(protocol.proto_fields, protocol.message_type)
    table.insert(protocol.proto_fields, protocol.extension)
    protocol.proto.fields = protocol.proto_fields
    protocol.unknown_expert = ProtoExpert.new(
        protocol.name .. ".unknown_message", "Unknown message type", experts_unknown, expert.severity.WARN)
    protocol.cut_expert = ProtoExpert.new(
        protocol.name .. ".cut", "Cut message", experts_malformed, expert.severity.ERROR)
    protocol.long_expert = ProtoExpert.new(
        protocol.name .. ".too_long", "Message longer than declared", experts_malformed, expert.severity.WARN)
    protocol.proto.experts = { protocol.unknown_expert, protocol.cut_expert, protocol.long_expert }
    return protocol
end

local function show_field(tree, range, field)
    local kind, little = field.kind, field.little
    if kind == "ascii" or kind == "ascii_number" then
        local text = trimmed(range:raw())
        if kind == "ascii_number" then text = text:gsub("^ +", "") end
        tree:add(field.proto, range, text)
    elseif kind == "decimal" then
        local raw = field.signed and signed(range, little) or unsigned(range, little)
        local text = decimal_text(raw, field.places)
        local item = tree:add(field.proto, range, tonumber(text))
        item:set_text(field.label .. ": " .. (field.absent == tostring(raw) and "none" or text))
        if little then item:add_le(field.proto_raw, range) else item:add(field.proto_raw, range) end
    elseif kind == "enum" then
        local raw, item = nil, nil
        if field.values.text then
            raw = range:raw()
            item = tree:add(field.proto, range, trimmed(raw))
        else
            raw = tostring(unsigned(range, little))
            item = little and tree:add_le(field.proto, range) or tree:add(field.proto, range)
        end
        item:append_text(" (" .. (field.values[raw] or "not listed") .. ")")
    elseif kind == "flags" then
        local item = little and tree:add_le(field.proto, range) or tree:add(field.proto, range)
        for _, flag in ipairs(field.flags) do
            local proto_field = flag.proto[field.flags_name]
            if little then item:add_le(proto_field, range) else item:add(proto_field, range) end
        end
    elseif kind == "bytes" or kind == "rest" then
        tree:add(field.proto, range)
    else
        local item = little and tree:add_le(field.proto, range) or tree:add(field.proto, range)
        local raw = kind == "signed" and signed(range, little) or unsigned(range, little)
        if field.absent == tostring(raw) then item:append_text(" (none)") end
        if kind == "nanoseconds_since_midnight" then
            item:append_text(" (" .. clock_text(seconds_and_nanoseconds(raw)) .. ")")
        elseif kind == "nanoseconds_since_epoch" then
            item:append_text(" (" .. date_text(seconds_and_nanoseconds(raw)) .. ")")
        elseif kind == "seconds_since_midnight" then
            item:append_text(" (" .. clock_text(tonumber(raw)) .. ")")
        elseif kind == "seconds_since_epoch" then
            item:append_text(" (" .. date_text(tonumber(raw)) .. ")")
        end
    end
end

local function field_named(structure, name)
    for _, field in ipairs(structure.fields) do
        if field.name == name then return field end
    end
end

local function number_in(structure, name, range)
    local field = field_named(structure, name)
    if not field or range:len() < field.offset + field.length then return nil end
    return tonumber(tostring(unsigned(range(field.offset, field.length), field.little)))
end

-- Shows the fields of a structure in a range, and answers the bytes used; nil if it is cut.
local function show_structure(protocol, structure, range, tree)
    local length, used = range:len(), 0
    for _, field in ipairs(structure.fields) do
        if field.kind == "group" then
            local count, size = number_in(structure, field.count, range) or 0, field.entry.minimum
            for index = 0, count - 1 do
                local offset = field.offset + index * size
                if offset + size > length then
                    tree:add_proto_expert_info(protocol.cut_expert, string.format("%d of %d entries are cut", count - index, count))
                    return nil
                end
                local entry = tree:add(protocol.proto, range(offset, size), string.format("%s [%d]", field.entry.title, index))
                show_structure(protocol, field.entry, range(offset, size), entry)
                used = offset + size
            end
        elseif field.kind == "rest" then
            if length > field.offset then show_field(tree, range(field.offset), field) end
            used = length
        elseif field.kind ~= "blocks" then
            if field.offset + field.length > length then
                if field.since and length == field.offset then return used end
                tree:add_proto_expert_info(protocol.cut_expert,
                    string.format("Cut: %s needs bytes up to %d, %d there", structure.title, field.offset + field.length, length))
                return nil
            end
            show_field(tree, range(field.offset, field.length), field)
            used = field.offset + field.length
        end
    end
    return math.max(used, structure.minimum)
end

local function tag_of(protocol, range)
    local tag, constant = protocol.tag, protocol.constant
    -- A message with another byte there is of no known type.
    if constant and (range:len() <= constant.offset or range(constant.offset, 1):uint() ~= constant.value) then return nil end
    if not tag or range:len() < tag.offset + tag.length then return nil end
    local place = range(tag.offset, tag.length)
    if tag.text then return place:raw() end
    return tostring(unsigned(place, protocol.little))
end

-- Shows one message of an application and answers its name.
local function show_message(protocol, range, tree)
    local tag = tag_of(protocol, range)
    local structure = tag and protocol.by_tag[tag]
    local item = tree:add(protocol.proto, range)
    if not structure then
        item:append_text(": unknown message " .. (tag or "(no type)"))
        item:add_proto_expert_info(protocol.unknown_expert)
        return "?"
    end
    item:append_text(": " .. structure.title)
    item:add(protocol.message_type, range(protocol.tag.offset, protocol.tag.length), structure.title)
    local used = show_structure(protocol, structure, range, item)
    if used and used < range:len() then
        local rest = item:add(protocol.extension, range(used))
        if not protocol.extensible then rest:add_proto_expert_info(protocol.long_expert) end
    end
    return structure.title
end

-- The structure that an application has for a message, if its type and length fit.
local function fitting(application, message)
    local tag = tag_of(application, message)
    local structure = tag and application.by_tag[tag]
    if not structure or message:len() < structure.minimum then return nil end
    if structure.exact and not application.extensible and message:len() ~= structure.minimum then return nil end
    return structure
end

-- The application of a message: the one that the header names, or the first that has a message of this type and length, or of
-- this type and a lesser length, as an earlier revision has.
local function choose(transport, structure, header, message)
    local first, earlier
    for _, carried in ipairs(transport.carries) do
        local application = carried.application
        local selected = not carried.within or carried.within == structure.title
        if carried.selector and structure then
            selected = number_in(structure, carried.selector, header) == carried.value
        end
        if selected then
            first = first or application
            local found = fitting(application, message)
            if carried.selector or found and message:len() == found.minimum then return application end
            earlier = earlier or (found and application)
        end
    end
    return earlier or first
end

local function printable(structure, range)
    for _, field in ipairs(structure.fields) do
        if field.kind == "ascii" and range(field.offset, field.length):raw():find("[^%g %z]") then return false end
    end
    return true
end

-- Walks the blocks of a datagram. Answers the list of messages, the offset reached, and what is wrong.
local function walk(transport, structure, range)
    local blocks = structure.fields[#structure.fields]
    local count, offset, messages = number_in(structure, blocks.count, range), blocks.offset, {}
    if count == transport.special_count then return messages, offset end
    for index = 1, count do
        if offset + blocks.prefix > range:len() then
            return messages, offset, string.format("%d of %d messages are missing", count - index + 1, count)
        end
        local size = unsigned(range(offset, blocks.prefix), blocks.little)
        -- A length that counts itself is the beginning of its message.
        local before = blocks.inclusive and 0 or blocks.prefix
        if before + size < blocks.prefix or offset + before + size > range:len() then
            return messages, offset, string.format("message %d of %d is cut", index, count)
        end
        if size > 0 then messages[#messages + 1] = range(offset + before, size) end
        offset = offset + before + size
    end
    return messages, offset
end

-- Whether the bytes from `offset` on are padding.
local function is_padding(transport, range, offset)
    local length = range:len() - offset
    return length == 0 or length <= (transport.padding or 0) and not range(offset):raw():find("[^%z]")
end

local function set_columns(pinfo, transport, names)
    pinfo.cols.protocol = transport.title
    local shown, counts = {}, {}
    for _, name in ipairs(names) do
        if not counts[name] then shown[#shown + 1] = name end
        counts[name] = (counts[name] or 0) + 1
    end
    for index, name in ipairs(shown) do
        if counts[name] > 1 then shown[index] = name .. " x" .. counts[name] end
    end
    pinfo.cols.info = #shown > 0 and table.concat(shown, ", ") or "no messages"
end

-- The transports of datagrams.
local datagrams = {}

-- Whether an application of a transport has a structure for a message.
local function knows(transport, message)
    for _, carried in ipairs(transport.carries) do
        if fitting(carried.application, message) then return true end
    end
    return false
end

-- Whether a message is none of a transport's, and one of another whose header has the same layout.
local function is_of_another(transport, message)
    if knows(transport, message) then return false end
    for _, other in ipairs(datagrams) do
        if other ~= transport and other.layout == transport.layout and knows(other, message) then return true end
    end
    return false
end

-- The layout of a header: where its fields are.
local function layout_of(structure)
    local places = {}
    for index, field in ipairs(structure.fields) do places[index] = field.offset .. "+" .. field.length end
    return table.concat(places, " ")
end

-- Bytes of the packet or message of a TCP stream that starts at an offset.
local function size_at(transport, tvb, offset)
    local framing = transport.framing
    return framing.uncounted + unsigned(tvb(offset + framing.offset, 2), framing.little)
end

-- Whether a message of a packet is of an application that the packet's header selects, with its exact length. Such are the
-- messages of a session: a feed has no selector here.
local function is_of_session(transport, structure, range, message)
    for _, carried in ipairs(transport.carries) do
        if carried.selector and number_in(structure, carried.selector, range) == carried.value then
            local found = fitting(carried.application, message)
            if found and message:len() == found.minimum then return true end
        end
    end
    return false
end

-- The packets of datagrams on a TCP stream. It is taken by a packet of messages that no other session with the same header has.
local function register_packets_of_stream(transport, structure, dissect_packet)
    local proto = transport.proto
    local function dissect(tvb, _, root)
        dissect_tcp_pdus(tvb, root, structure.minimum,
            function(buffer, _, offset) return math.max(size_at(transport, buffer, offset), structure.minimum) end,
            function(buffer, info, tree) dissect_packet(buffer, info, tree) return buffer:len() end)
        return tvb:len()
    end
    local function is_start(tvb)
        if tvb:len() < structure.minimum then return false end
        local size = size_at(transport, tvb, 0)
        if size <= structure.minimum or size > tvb:len() then return false end
        local range = tvb(0, size)
        local messages, offset, wrong = walk(transport, structure, range)
        if wrong or offset ~= size or #messages == 0 then return false end
        for _, message in ipairs(messages) do
            if not is_of_session(transport, structure, range, message) then return false end
            for _, other in ipairs(datagrams) do
                if other ~= transport and other.framing and other.layout == transport.layout
                    and is_of_session(other, other.by_name[other.header], range, message) then return false end
            end
        end
        return true
    end
    proto:register_heuristic("tcp", function(tvb, pinfo, root)
        if not is_start(tvb) then return false end
        pinfo.conversation = proto
        dissect(tvb, pinfo, root)
        return true
    end)
    DissectorTable.get("tcp.port"):add_for_decode_as(proto)
    return dissect
end

local function register_datagram(transport)
    local structure = transport.by_name[transport.header]
    transport.layout = layout_of(structure)
    datagrams[#datagrams + 1] = transport
    local without_messages = transport.without_messages and transport.by_name[transport.without_messages]
    local proto = transport.proto
    local function dissect_packet(tvb, pinfo, root)
        local range = tvb()
        local tree = root:add(proto, range)
        if without_messages and range:len() == without_messages.minimum then
            show_structure(transport, without_messages, range, tree)
            set_columns(pinfo, transport, {})
            return
        end
        if range:len() < structure.minimum then
            tree:add_proto_expert_info(transport.cut_expert)
            return
        end
        show_structure(transport, structure, range, tree)
        local messages, offset, wrong = walk(transport, structure, range)
        local names = {}
        for _, message in ipairs(messages) do
            local application = choose(transport, structure, range, message)
            names[#names + 1] = application and show_message(application, message, root) or "?"
        end
        if wrong then
            tree:add_proto_expert_info(transport.cut_expert, wrong)
        elseif offset < range:len() then
            tree:add(transport.extension, range(offset))
        end
        set_columns(pinfo, transport, names)
    end
    local dissect_stream = transport.framing and register_packets_of_stream(transport, structure, dissect_packet)
    local TCP = 2
    function proto.dissector(tvb, pinfo, root)
        if dissect_stream and pinfo.port_type == TCP then return dissect_stream(tvb, pinfo, root) end
        dissect_packet(tvb, pinfo, root)
    end
    local function looks_right(tvb)
        local range = tvb()
        if range:len() < structure.minimum or not printable(structure, range) then return false end
        local messages, offset, wrong = walk(transport, structure, range)
        if wrong or not is_padding(transport, range, offset) then return false end
        if messages[1] and is_of_another(transport, messages[1]) then return false end
        if transport.payload_length and number_in(structure, transport.payload_length, range) ~= range:len() - structure.minimum then
            return false
        end
        if transport.packet_length and number_in(structure, transport.packet_length, range) ~= range:len() then
            return false
        end
        for _, carried in ipairs(transport.carries) do
            if not carried.selector or number_in(structure, carried.selector, range) == carried.value then return true end
        end
        return #transport.carries == 0
    end
    proto:register_heuristic("udp", function(tvb, pinfo, root)
        if not looks_right(tvb) then return false end
        proto.dissector(tvb, pinfo, root)
        return true
    end)
    DissectorTable.get("udp.port"):add_for_decode_as(proto)
end

local function register_stream(transport)
    local proto = transport.proto
    local head = transport.framing.offset + 2
    local function one(tvb, pinfo, root)
        local range = tvb()
        local tag = tag_of(transport, range)
        local structure = tag and transport.by_tag[tag]
        local name = show_message(transport, range, root)
        local payload = structure and transport.payloads[structure.title]
        if payload and range:len() > structure.minimum then
            local message = range(structure.minimum)
            local application = choose(transport, structure, range, message)
            if application then name = show_message(application, message, root) end
        end
        set_columns(pinfo, transport, { name })
        return range:len()
    end
    local function dissect(tvb, pinfo, root)
        dissect_tcp_pdus(tvb, root, head, function(buffer, _, offset) return size_at(transport, buffer, offset) end,
            function(buffer, info, tree) return one(buffer, info, tree) end)
        return tvb:len()
    end
    proto.dissector = dissect
    proto:register_heuristic("tcp", function(tvb, pinfo, root)
        if tvb:len() < head + 1 then return false end
        local range = tvb()
        local tag = tag_of(transport, range)
        local structure = tag and transport.by_tag[tag]
        local size = size_at(transport, tvb, 0)
        -- What is no more than its length and type may be of any protocol.
        if size <= head then return false end
        if not structure or size < structure.minimum then return false end
        if structure.exact and size ~= structure.minimum then return false end
        if size > tvb:len() then return false end
        if transport.payloads[structure.title] and #transport.carries > 0 then
            local known = false
            if size > structure.minimum then
                local message = range(structure.minimum, size - structure.minimum)
                for _, carried in ipairs(transport.carries) do
                    local here = not carried.within or carried.within == structure.title
                    known = known or (here and fitting(carried.application, message) ~= nil)
                end
            end
            if not known then return false end
        end
        -- Later segments of this connection come here too. The function is called, not the registered dissector:
        -- one more level of dissectors and Wireshark would no longer put cut packets together.
        pinfo.conversation = proto
        dissect(tvb, pinfo, root)
        return true
    end)
    DissectorTable.get("tcp.port"):add_for_decode_as(proto)
end
