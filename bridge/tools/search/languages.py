"""Frequent words of other languages in requests, each with the English word that descriptions of tools have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.tools.search.words import STOP_WORDS, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRANSLATIONS = """
account konto compte cuenta conta
add hinzufügen füge ergänze ajoute ajouter añade añadir agrega agregar aggiungi adiciona adicionar
address adresse dirección indirizzo endereço
address ort lieu lugar luogo
answer antworte antwort beantworte réponds répondre réponse responde responder respuesta rispondi
appointment termin rendez cita appuntamento
article artikel beitrag articles artículo artículos articolo artigo artigos
assign zuweisen weise assigne attribue asigna asignar assegna atribui
branch zweig branche rama ramo
browser navigateur navegador
calendar kalender calendrier calendario
call anrufen aufrufen appelle llama chiama
cell zelle zellen cellule celda cella
change ändere ändern modifie modifier changer cambia cambiar modifica modificar altera alterar
chart diagramm graphique gráfico grafico
click klicke klick clique cliquer clic
close schließe schließen ferme fermer cierra cerrar chiudi fecha fechar
code quelltext código codice
color farbe couleur colore cor
column spalte colonne columna colonna coluna
comment kommentar kommentiere commentaire commente comentario comenta commento comentário
connect verbinde verbinden connecte connecter conecta conectar
contact kontakt contacto contatto contato
convert umwandeln wandle konvertiere convertis convertir convierte converti converta converte
copy kopiere kopieren kopie copie copier copia copiar
cost kosten kostet coût coûte costo cuesta custo preis prix precio prezzo preço
count zähle viele combien cuántos cuántas quanti quantos
create erstelle erstellen erzeuge lege anlegen neue neuen neues crée créer crea crear criar cria creare
customer kunde kunden client clients cliente clientes
database datenbank base datos dados
date datum fecha
delete lösche löschen entferne supprime supprimer efface effacer borra borrar elimina eliminar cancella apaga apagar
deploy bereitstellen déploie déployer despliega desplegar
difference unterschied différence diferencia differenza diferença
directions route weg komme itinéraire ruta percorso rota trajet
download lade herunterladen télécharge télécharger descarga descargar scarica baixa baixar
edit bearbeite bearbeiten éditer édite edita editar
email nachricht courriel mél correo posta
error fehler erreur erreurs error errores errore erro erros
event ereignis termin événement evento eventos
explain erkläre erklären explique expliquer explica explicar spiega
file datei dateien fichier fichiers archivo archivos arquivo arquivos ficheiro
fill fülle ausfüllen remplis remplir rellena rellenar compila preencha
find finde finden trouve trouver encuentra encontrar trova encontra encontre
folder ordner verzeichnis dossier répertoire carpeta directorio cartella pasta diretório
history verlauf historie historique historial storico histórico
image bild bilder foto imagen imágenes immagine imagem imagens
install installiere installieren installe installer instala instalar installa
invoice rechnung facture factura fattura fatura
issue fehlerbericht problème problema
label etikett étiquette etiqueta etichetta
line zeile zeilen ligne lignes línea fila riga linha
list liste auflisten lister lista listar elenca elenco welche quels quelles cuáles quali quais
log protokoll protokolle journal registro registros
machine maschine rechner máquina macchina
map karte carte mapa mappa
merge zusammenführen führe fusionne fusionner fusiona fusionar unisci mescla
message nachricht nachrichten mensaje mensajes messaggio mensagem mensagens
meeting besprechung réunion reunión riunione reunião
move verschiebe verschieben déplace déplacer mueve mover sposta
name benenne umbenennen renomme renommer nombre renombra nome rinomina renomeia
nearby nähe près proche cerca vicino perto
network netzwerk réseau red rete rede
note notiz notizen nota notas
number zahl nummer nombre numéro número numero
open öffne öffnen ouvre ouvrir abre abrir apri abra
page seite seiten página pagina pages
paper veröffentlichung publication científico científicos scientifique wissenschaftliche
password passwort kennwort mot contraseña senha
pay bezahle zahlung paie paiement paga pagar pago pagamento
place ort lieu lugar
project projekt projekte projet proyecto progetto projeto
question frage pregunta domanda pergunta
query abfrage frage requête consulta interroga
read lies lesen lire lis lee leer leggi leia ler
remember merke merk rappelle recuerda ricorda lembra
request anfrage demande solicitud richiesta pedido
restaurant ristorante restaurante
review prüfe überprüfe vérifie revisa rivedi revise
row zeile zeilen ligne fila riga linha
run führe ausführen starte exécute exécuter lance lancer ejecuta ejecutar esegui executa executar
save speichere speichern enregistre enregistrer sauvegarde guarda guardar salva salvar
schedule plan planung planifie programa programar
screenshot bildschirmfoto capture captura schermata
search suche suchen cherche chercher recherche rechercher busca buscar cerca cercare procura procurar pesquisa
send sende schicke schick senden envoie envoyer envía enviar manda mandar invia envia
server serveur servidor
share teile teilen partage partager comparte compartir condividi compartilha
show zeige zeig anzeigen montre montrer affiche afficher muestra mostrar mostra mostre
sort sortiere sortieren trie trier ordena ordenar ordina
spreadsheet tabellenkalkulation feuille hoja planilha foglio
start starte starten démarre démarrer inicia iniciar avvia
stop stoppe stoppen beende arrête arrêter detén parar ferma pare
summary zusammenfassung fasse résumé résume resumen resume riassunto resumo
table tabelle tableau tabla tabella tabela
task aufgabe aufgaben tâche tarea tareas compito tarefa
team mannschaft équipe equipo squadra equipe
text texte texto testo
ticket störung billet
time uhr uhrzeit spät zeit heure hora horas ora ore
timezone zeitzone fuseau
today heute aujourd hoy oggi hoje
transcribe transkribiere transcris transcribe trascrivi
translate übersetze traduis traduire traduce traducir traduci traduz
update aktualisiere aktualisieren actualise actualiza actualizar aggiorna atualiza atualizar
upload hochladen téléverse sube subir carica envie
user benutzer nutzer utilisateur usuario usuarios utente usuário usuários
version fassung versión versione versão
virtual virtuelle virtuellen virtuelle virtuale
wait warte warten attends attendre espera esperar aspetta aguarde
weather wetter météo clima tiempo tempo meteo
create создай создать создайте
delete удали удалить
download скачай скачать
file файл файлы
find найди найти
folder папка папку папке
list список перечисли
log логи лог журнал
message сообщение
open открой открыть
page страница страницу
run запусти выполни
search поиск поищи ищи
send отправь отправить пошли
show покажи показать
time время час
update обнови измени
upload загрузи загрузить
weather погода
web internet netz toile
website webseite webseiten site sitio sito
word wort mot palabra parola palavra
write schreibe schreiben schreib écris écrire escribe escribir scrivi escreve escrever
"""
_UNSPACED = """
address 地址 住所
branch 分支 ブランチ
browser 浏览器 ブラウザ
calendar 日历 カレンダー
click 点击 クリック
close 关闭 閉じ
comment 评论 コメント
commit 提交 コミット
create 创建 新建 建立 作成 作って
database 数据库 データベース
delete 删除 削除
directions 路线 道順 経路
download 下载 ダウンロード
email 邮件 邮箱 メール
file 文件 ファイル
folder 文件夹 目录 フォルダ
image 图片 画像
list 列出 列表 一覧
log 日志 ログ
machine 机器 マシン
meeting 会议 会議
merge 合并 マージ
message 消息 メッセージ
nearby 附近 近く
open 打开 開く 開いて 開き
page 页面 网页 ページ
paper 论文 論文
query 查询
read 读取 阅读 読む 読んで 読み
repository 仓库 リポジトリ
restaurant 餐厅 餐馆 レストラン
run 运行 执行 実行
screenshot 截图 截屏 スクリーンショット
search 搜索 查找 寻找 検索 探して
send 发送 送信 送って
show 显示 查看 表示 見せて
spreadsheet 电子表格 スプレッドシート
subscription 订阅 サブスクリプション
task 任务 タスク
time 时间 几点 時間 何時
translate 翻译 翻訳
update 更新 修改 変更
upload 上传 アップロード
user 用户 ユーザー
virtual 虚拟 仮想
weather 天气 天気
write 写入 書く 書いて
"""
_MIN_PART = 4
"""A query is in another language if one of so many of its words is."""
_STOP_WORDS = """
aber alle als am an auf aus bei bitte das dass dein dem den der des die diese dieser dieses doch du durch ein eine einem
einen einer es für gib hat ich ihr im in ist ja kann kannst mein meine meinem meinen meiner mich mir mit nach nicht noch
oder sich sie sind und uns unser unsere von vom vor was wer wie wir wird wo zu zum zur
au aux avec ce ces cette dans de des du elle en est et il je la le les leur ma me mes moi mon nous ou où par pas peux
plus pour qu que quel quelle qui sa se ses son sur ta te tes toi ton tu un une vos votre vous
al como con cuál de del dónde el ella ellos en es esta este esto la las lo los me mi mis no nos para pero por qué que se
si sin sobre su sus te tu un una unas uno unos y yo
da dal dalla dei del della delle di e gli i il io la le lo mi nel nella per più qual quale qui se si su sua suo tra un
uno
ao aos as da das do dos ele em essa esse esta este isso meu minha na nas no nos o os ou pela pelo por qual seu sua
um uma
"""


def _by_word() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in _TRANSLATIONS.split("\n"):
        english, *others = words_of(line) or [""]
        for word in others:
            found.setdefault(word, {})[english] = None
    return {word: tuple(english) for word, english in found.items()}


def _unspaced() -> Mapping[str, str]:
    lines = (line.split() for line in _UNSPACED.strip().split("\n"))
    return {word: f" {english} " for english, *words in lines for word in words}


UNSPACED = _unspaced()
"""English words for words of Chinese and Japanese, which are written without spaces."""
_UNSPACED_WORD = re.compile("|".join(sorted(UNSPACED, key=len, reverse=True)))
TRANSLATIONS = _by_word()
"""English words for words of German, French, Spanish, Italian and Portuguese, without accents."""
FOREIGN_STOP_WORDS = frozenset(words_of(_STOP_WORDS))
"""Words of these languages that do not tell one tool from another; some of them are English words, too."""
_ENGLISH = frozenset(word for words in TRANSLATIONS.values() for word in words) | STOP_WORDS


def words_in_english(query: str) -> list[str]:
    """Return the words of a query, in which frequent words of other languages are translated."""
    if not query.isascii():
        query = _UNSPACED_WORD.sub(lambda found: UNSPACED[found[0]], query)
    words = words_of(query)
    foreign = [word for word in words if word not in _ENGLISH and (word in TRANSLATIONS or word in FOREIGN_STOP_WORDS)]
    if len(foreign) * _MIN_PART < len(words):
        return words
    return [
        english
        for word in words
        if word not in FOREIGN_STOP_WORDS
        for english in (() if word in _ENGLISH else TRANSLATIONS.get(word, ())) or (word,)
    ]
